"""A table in a notebook, below the running cell, with lines below it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = 120
"""Width of the output in characters; a narrow page scrolls."""
_HTML = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (Jupyter, Colab, VS Code)."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookTable:
    """A table in the output of the cell that runs, drawn again in its place."""

    def __init__(self, draw: Callable[[], RenderableType], below: Callable[[], str] = str) -> None:
        """
        Args:
            draw: returns the output to show.
            below: returns HTML that is shown below it, such as a chart.
        """
        self._draw = draw
        self._below = below
        self._handle: Any = None

    def start(self) -> None:
        """Shows it, below what the cell has printed so far."""
        from IPython.display import display

        self._handle = display(self._shown(), raw=True, display_id=True)

    def refresh(self) -> None:
        """Shows it as it is now."""
        if self._handle is not None:
            self._handle.update(self._shown(), raw=True)

    def stop(self) -> None:
        """Shows it for the last time."""
        self.refresh()

    def _shown(self) -> dict[str, str]:
        """The table by the kind of text."""
        from rich.console import Console

        # Not for Jupyter: there it would add an output of its own for each print.
        console = Console(
            file=io.StringIO(),
            record=True,
            width=_COLUMNS,
            color_system="truecolor",
            force_terminal=True,
            force_jupyter=False,
        )
        console.print(self._draw())
        html = console.export_html(inline_styles=True, code_format=_HTML, clear=False)
        return {"text/html": html + self._below(), "text/plain": console.export_text()}
