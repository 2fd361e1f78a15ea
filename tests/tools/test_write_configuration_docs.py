"""The page and the schema say what the models say."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = REPOSITORY / "tools" / "write_configuration_docs.py"
    spec = importlib.util.spec_from_file_location("write_configuration_docs", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with nothing but the page."""
    for folder in ("docs", "configs"):
        (tmp_path / folder).mkdir()
    shutil.copy(REPOSITORY / "docs" / "configuration.md", tmp_path / "docs")
    return tmp_path


def test_nothing_is_stale(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    stale = tool.main(["--check"], REPOSITORY)
    assert stale == 0, capsys.readouterr().out


def test_every_key_of_every_section_has_a_row(tool: ModuleType) -> None:
    told = tool.tables()
    definitions = tool.json_schema()["$defs"]
    in_chapters = {name for chapter in tool.chapters() for name in chapter.models.values()}
    bases = {"Hyperparameters", "RewardSignalSettings", "SamplerParameters"}
    assert in_chapters == set(definitions) - bases
    for name in in_chapters:
        for key, schema in definitions[name]["properties"].items():
            assert ("deprecationMessage" in schema) != (f"| `{key}` |" in told), key


@pytest.mark.parametrize(
    "config", sorted((REPOSITORY / "configs").glob("*.yaml")), ids=lambda path: path.name
)
def test_editors_find_the_schema_of_every_bundled_file(config: Path) -> None:
    first = config.read_text(encoding="utf-8").splitlines()[0]
    start = "# yaml-language-server: $schema="
    assert first.startswith(start)
    assert (config.parent / first.removeprefix(start)).resolve() == REPOSITORY / "configs" / "schema.json"


def test_schema_file_equals_the_commands_output(capsys: pytest.CaptureFixture[str]) -> None:
    from trainer_service.cli import main

    assert main(["schema"]) == 0
    assert capsys.readouterr().out == (REPOSITORY / "configs" / "schema.json").read_text(encoding="utf-8")
