"""Sphinx's settings: the pages of this repository as they stand, so that links between them work here as on GitHub."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

from trainer_service import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "Trainer Service"
copyright = "The maintainers of Trainer Service"
release = version = __version__

# The root of the repository is the root of the pages, for they link to files all over it.
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "examples/**/*.md"]
exclude_patterns = ["docs/_build"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # as GitHub names them
highlight_language = "text"
autodoc_typehints = "both"  # callbacks override methods whose arguments no text explains
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"{project} {version}"

_START = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={}">\n'


def setup(app: Sphinx) -> None:
    """Lets whoever opens the folder arrive at its first page."""
    app.connect("build-finished", _write_start)


def _write_start(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(_START.format(f"{root_doc}.html"), encoding="utf-8")
