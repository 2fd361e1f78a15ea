"""A Sphinx extension that writes equations as MathML, which browsers draw without a script or a font from elsewhere."""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

_ALIGNED = (("{aligned}", "{align*}"), ("{split}", "{align*}"))
"""Environments of LaTeX that the converter does not know, and the one that it draws alike."""


def mathml(latex: str, *, is_block: bool) -> str:
    """An equation as a MathML element, with its LaTeX as the text for screen readers and for copying."""
    drawn = latex
    for environment, known in _ALIGNED:
        drawn = drawn.replace(environment, known)
    element = convert(drawn, display="block" if is_block else "inline")
    return element.replace("<math ", f'<math alttext="{html.escape(" ".join(latex.split()))}" ', 1)


def _write_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext(), is_block=False))
    raise nodes.SkipNode


def _write_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(mathml(node.astext(), is_block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer, and makes it the one in use."""
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
