"""Pages and the schema that tools write say what the parsers and models say."""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded_files import module_of

REPOSITORY = Path(__file__).parents[2]
COMMANDS, CONFIGURATION = (
    module_of(REPOSITORY / "tools" / f"write_{page}_docs.py") for page in ("command_line", "configuration")
)


@pytest.mark.parametrize("tool", [COMMANDS, CONFIGURATION], ids=["commands", "configuration"])
def test_nothing_is_stale(tool, capsys: pytest.CaptureFixture[str]) -> None:
    stale = tool.main(["--check"], REPOSITORY)
    assert stale == 0, capsys.readouterr().out


def test_every_argument_has_a_meaning() -> None:
    assert "|  |" not in COMMANDS.page(COMMANDS.read_commands())


def test_every_key_of_every_section_has_a_row() -> None:
    told = CONFIGURATION.tables()
    definitions = CONFIGURATION.json_schema()["$defs"]
    in_chapters = {name for chapter in CONFIGURATION.chapters() for name in chapter.models.values()}
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
