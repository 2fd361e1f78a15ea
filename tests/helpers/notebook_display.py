"""The display of a notebook's cell, as a run finds it in IPython."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest


class CellDisplay:
    """An output that is displayed once, and updated in its place; this process is a notebook's kernel meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[dict[str, str]] = []
        """What the output held, one after the other, by the kind of text."""
        self._ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
        monkeypatch.setitem(sys.modules, "IPython", self._ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=self._display))

    def leave(self) -> None:
        """Makes this process an ordinary one again."""
        self._ipython.get_ipython = lambda: None

    def _display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> CellDisplay:
        assert not self.shown, "one output"
        self.shown.append(bundle)
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        self.shown.append(bundle)
