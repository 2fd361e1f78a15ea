"""The switch of all fast paths: shortcuts for common cases, which the general code handles as well."""

from __future__ import annotations

import os

SLOW = "TRAINER_SERVICE_SLOW"
"""The environment variable that turns all fast paths off."""


def fast_paths_allowed() -> bool:
    """Whether fast paths may be taken: unless the environment says ``TRAINER_SERVICE_SLOW=1``."""
    return os.environ.get(SLOW, "").strip().lower() in ("", "0", "false", "no", "off")
