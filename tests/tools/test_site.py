"""The site's own extensions: equations without a script, the Markdown of pages, their index, other versions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
for module in ("sphinx", "myst_nb", "furo", "sphinx_design", "sphinx_copybutton", "latex2mathml"):
    pytest.importorskip(module)

pytestmark = pytest.mark.process

FIRST = """# A site

It has pages. Here they are.

```{toctree}
:caption: Guides
:hidden:

equations
notebook
reference
```
"""
EQUATIONS = r"""# Equations

This page has $a < b$ and [a file](sub/data.yaml).

$$
\begin{aligned} L &= \min(r, 1) \\ H &= 0 \end{aligned}
$$
"""
REFERENCE = """# Reference

Functions.

```{eval-rst}
.. autofunction:: json.dumps
```
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Notebook\n", "\n", "Cells."]},
        {
            "cell_type": "code", "id": "b", "metadata": {}, "source": ["1 +", " 1"], "outputs": [],
            "execution_count": None,
        },
    ],
    "metadata": {"language_info": {"name": "python", "pygments_lexer": "ipython3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small site, built with the settings, templates and extensions of the real one."""
    root = tmp_path_factory.mktemp("site")
    docs = root / "docs"
    for folder in ("_extensions", "_templates", "_static"):
        shutil.copytree(REPOSITORY / "docs" / folder, docs / folder)
    shutil.copy(REPOSITORY / "docs" / "conf.py", docs)
    (docs / "sub").mkdir()
    (docs / "sub" / "data.yaml").write_text("key: 1\n")
    for name, text in {"index": FIRST, "equations": EQUATIONS, "reference": REFERENCE}.items():
        (docs / f"{name}.md").write_text(text, encoding="utf-8")
    (docs / "notebook.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
    conf = docs / "conf.py"
    conf.write_text(conf.read_text().replace("docs/notebooks/*.ipynb", "docs/*.ipynb"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-c", "docs", ".", "html"],
        cwd=root, env={**os.environ, "PYTHONPATH": str(REPOSITORY), "DOCS_VERSIONS": "main 0.0.9"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return root / "html"


def page(site: Path, name: str) -> str:
    return (site / "docs" / name).read_text(encoding="utf-8")


def test_pages_load_nothing_from_other_machines(site: Path) -> None:
    for name in ("index.html", "equations.html", "notebook.html"):
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="([^"]+)"', page(site, name))
        assert loaded
        assert not [each for each in loaded if "//" in each]


def test_each_page_has_its_markdown_and_the_files_that_it_links_to(site: Path) -> None:
    assert page(site, "equations.md") == EQUATIONS
    assert page(site, "sub/data.yaml") == "key: 1\n"
    assert page(site, "notebook.md") == "# Notebook\n\nCells.\n\n```python\n1 + 1\n```\n"
    assert "JSON" in page(site, "reference.md")  # of the docstring
    assert '<link rel="alternate" type="text/markdown" href="equations.md"' in page(site, "equations.html")


def test_the_index_lists_each_page_with_its_first_sentence(site: Path) -> None:
    title, *lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert title.startswith("# Trainer Service ")
    assert [line for line in lines if line] == [
        "> It has pages.",
        "## Guides",
        "- [Equations](docs/equations.md): This page has a < b and a file.",
        "- [Notebook](docs/notebook.md): Cells.",
        "- [Reference](docs/reference.md): Functions.",
    ]


def test_pages_link_to_other_versions(site: Path) -> None:
    assert re.findall(r'href="([^"]+)">(?:main|0\.0\.9)</a>', page(site, "equations.html")) == [
        "../../main/index.html",
        "../../0.0.9/index.html",
    ]
