"""The optional dependencies of this project, as messages tell how to install them."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """The command that installs an extra in a checkout: no package index has this project, so its name is not safe."""
    return f'pip install -e ".[{extra}]"'


def install_hint(extra: str) -> str:
    """The command that installs an extra, and where to type it, for the end of a message."""
    return f"{install_command(extra)} (in a checkout of Trainer Service)"
