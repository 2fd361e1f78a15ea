"""A Sphinx extension that puts the Markdown of every page beside its HTML, and an index of them in llms.txt."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.text import TextBuilder
from sphinx.environment import BuildEnvironment

_DOCSTRINGS = ".. auto"
"""What the source of a page holds whose text is in docstrings."""

_OUTPUT = "docs/_build/"
"""Where notebooks leave copies of themselves, which no page links to."""

_LONGEST_SUMMARY = 200


def write_markdown(app: Sphinx, failure: Exception | None) -> None:
    """Writes llms.txt, and the Markdown of all pages with the files that they link to, at the paths of the sources."""
    if failure is not None or app.builder.name != "html":
        return
    for page in sorted(app.env.found_docs):
        _write_page(app, page)
    linked = (str(file) for file in (*app.env.dlfiles, *app.env.images))
    for file in sorted(each for each in linked if not each.startswith((_OUTPUT, ".."))):
        target = Path(app.outdir, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(app.srcdir, file), target)
    Path(app.outdir, "llms.txt").write_text(_index(app), encoding="utf-8")


def _write_page(app: Sphinx, page: str) -> None:
    source, target = Path(app.env.doc2path(page)), Path(app.outdir, f"{page}.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        target.write_text(_cells(text), encoding="utf-8")
    elif _DOCSTRINGS in text:
        _write_text(app, page)
    else:
        target.write_text(text, encoding="utf-8")


def _cells(notebook: str) -> str:
    """The cells of a notebook, code as fenced blocks."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    return "\n\n".join(parts) + "\n"


def _write_text(app: Sphinx, page: str) -> None:
    """Writes a page as Sphinx's text builder does, docstrings included."""
    builder = TextBuilder(app, app.env)
    builder.out_suffix = ".md"
    builder.prepare_writing(app.env.found_docs)
    builder.write_doc(page, app.env.get_and_resolve_doctree(page, builder))


def _index(app: Sphinx) -> str:
    """The pages by the captions of the first page's tables of contents, a line each with the first sentence."""
    env, root = app.env, app.config.root_doc
    lines = [f"# {app.config.project} {app.config.version}", "", f"> {_summary(env, root)}"]
    for toctree in env.get_doctree(root).findall(addnodes.toctree):
        lines += ["", f"## {toctree['caption']}", ""]
        lines += [_entry(env, page) for page in _pages(env, toctree)]
    return "\n".join(lines) + "\n"


def _pages(env: BuildEnvironment, toctree: nodes.Element) -> Iterator[str]:
    """The pages of a table of contents, each followed by the pages of its own tables."""
    for page in toctree["includefiles"]:
        yield page
        for inner in env.get_doctree(page).findall(addnodes.toctree):
            yield from _pages(env, inner)


def _entry(env: BuildEnvironment, page: str) -> str:
    summary = _summary(env, page)
    return f"- [{env.titles[page].astext()}]({page}.md)" + (f": {summary}" if summary else "")


def _summary(env: BuildEnvironment, page: str) -> str:
    """The first sentence of a page; empty for a page without a paragraph below its title."""
    for paragraph in env.get_doctree(page).findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):
            text = " ".join(paragraph.astext().split())
            sentence = re.split(r"(?<=[.!?:]) ", text)[0].rstrip(":")
            return sentence if len(sentence) <= _LONGEST_SUMMARY else f"{sentence[:_LONGEST_SUMMARY]}…"
    return ""


def _name_markdown(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Tells programs that read a page where its Markdown is."""
    if doctree is not None:
        name = page.rpartition("/")[2]
        context["metatags"] += f'<link rel="alternate" type="text/markdown" href="{name}.md">'


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the hooks."""
    app.connect("html-page-context", _name_markdown)
    app.connect("build-finished", write_markdown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
