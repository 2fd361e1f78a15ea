"""The optional dependencies of this project, as messages tell how to install them."""

from __future__ import annotations

import re
import shlex
from importlib import metadata
from pathlib import Path

WATCH_PACKAGES = ("starlette", "uvicorn")
"""Modules of the extra ``watch``, which only a page needs."""

_IN_CHECKOUT = (Path(__file__).parents[1] / "pyproject.toml").is_file()


def install_command(extra: str) -> str:
    """The command that installs an extra in a checkout: no package index has this project, so its name is not safe."""
    return f'pip install -e ".[{extra}]"'


def install_hint(extra: str) -> str:
    """The command that installs an extra, for the end of a message: in a checkout, else its packages by name."""
    if not _IN_CHECKOUT and (packages := _packages(extra)):
        return f"pip install {shlex.join(packages)}"
    return f"{install_command(extra)} (in a checkout of Trainer Service)"


def _packages(extra: str) -> list[str]:
    """The requirements of an extra, as the installed distribution lists them."""
    try:
        listed = metadata.requires("trainer-service") or []
    except metadata.PackageNotFoundError:
        return []
    of_extra = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    return [text.partition(";")[0].strip() for text in listed if of_extra.search(text)]
