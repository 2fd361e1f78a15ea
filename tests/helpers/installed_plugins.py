"""Distributions that offer plugins, in a folder of the search path as pip leaves them there."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

_EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE, STATS_WRITERS = _EXAMPLES / "plugin", _EXAMPLES / "stats_writers"


def install(
    site: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
    version: str = "0.1.0",
) -> None:
    """Writes a distribution: its metadata, and modules by file name."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in entry_points.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    for file, text in (modules or {}).items():
        (site / file).write_text(text)


def install_example(site: Path, example: Path = EXAMPLE) -> None:
    """Installs a distribution of ``examples/``, by what its pyproject.toml says."""
    document = tomllib.loads((example / "pyproject.toml").read_text())
    project = document["project"]
    install(site, project["name"], project["entry-points"], version=project["version"])
    (package,) = document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    shutil.copytree(example / package, site / Path(package).name)


def uninstall(site: Path, name: str) -> None:
    """Removes a distribution's metadata, as far as anybody looks."""
    for metadata in site.glob(f"{name.replace('-', '_')}-*.dist-info"):
        shutil.rmtree(metadata)
