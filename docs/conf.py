"""Sphinx's settings: the pages of this repository as they stand, so that links between them work here as on GitHub."""

import os
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
include_patterns = ["*.md", "docs/**.md", "docs/notebooks/*.ipynb", "examples/**/*.md"]
exclude_patterns = ["docs/_build", "**/node_modules"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",
    "markdown_pages",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4  # as GitHub names them
nb_execution_mode = "off"  # tests/test_notebooks.py runs them
highlight_language = "text"
smartquotes_action = "qe"  # of flags, --env, no dash is made
autodoc_typehints = "both"  # callbacks override methods whose arguments no text explains
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autosummary_generate = False  # tables alone: the entries stand below them
toc_object_entries = False  # topics, not hundreds of names

html_theme = "furo"
html_title = project
html_favicon = html_logo = "_static/favicon.svg"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b4501e", "color-brand-content": "#2b6390"},
    "dark_css_variables": {"color-brand-primary": "#f0925c", "color-brand-content": "#8fbbe0"},
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/versions.html",
        "sidebar/scroll-end.html",
    ]
}
# The versions that stand beside this one on the site: names of folders, such as "main 0.2.0 0.1.0".
html_context = {"other_versions": os.environ.get("DOCS_VERSIONS", "").split()}

_START = '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={}">\n'


def setup(app: Sphinx) -> None:
    """Lets whoever opens the folder arrive at its first page."""
    app.connect("build-finished", _write_start)


def _write_start(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(_START.format(f"{root_doc}.html"), encoding="utf-8")
