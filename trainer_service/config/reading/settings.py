"""Single settings as texts: ``behaviors.Walker.hyperparameters.batch_size=512``."""

from __future__ import annotations

import re
from typing import Any

from trainer_service.config.reading.document import read_value
from trainer_service.config.values import shown
from trainer_service.errors import ConfigError

_KEY = re.compile(r'"(?P<quoted>[^"]+)"|(?P<plain>[^."\[\]]+)')


def read_setting(text: str) -> tuple[list[str], Any]:
    """Splits ``KEY.KEY=VALUE`` into keys and a value, which is read as in a file. A key with a dot stands in quotes.

    Raises:
        ConfigError: it has another form, or the value is no YAML.
    """
    path, equals, value = text.partition("=")
    keys = _keys(path)
    if not (equals and keys):
        raise ConfigError(
            f"--set: expected KEY.KEY=VALUE, such as behaviors.Walker.max_steps=1e6, got {shown(text)}"
        )
    return keys, read_value(value, f"--set {path}")


def split_path(path: str) -> list[str]:
    """Splits ``KEY.KEY`` into keys; a key with a dot stands in quotes. Raises ConfigError for any other form."""
    keys = _keys(path)
    if not keys:
        raise ConfigError(f"expected a path such as behaviors.Walker.max_steps, got {shown(path)}")
    return keys


def _keys(path: str) -> list[str]:
    """The keys of a dotted path; none if it has another form."""
    keys = [match["quoted"] or match["plain"] for match in _KEY.finditer(path)]
    return keys if _KEY.sub("", path) == "." * (len(keys) - 1) else []
