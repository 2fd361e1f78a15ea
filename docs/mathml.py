"""Equations of the pages as MathML, which browsers draw themselves: no script, no font, no request to another host."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    # A long equation scrolls by itself: the page does not become wider than a phone.
    equation = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="math" style="overflow-x: auto">{equation}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Offers the renderer to ``html_math_renderer`` of conf.py."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
