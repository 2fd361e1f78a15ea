"""The pages of docs/trainers hold: defaults are the models', examples are valid, scores stand in the results."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_service.commands import main as cli
from trainer_service.config import parse_run_options
from trainer_service.config.hyperparameters.registry import TRAINERS

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docs" / "trainers"
OVERVIEW = FOLDER / "index.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {OVERVIEW})

YAML = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"\A# .*\((?P<types>[^)]*)\)$", re.MULTILINE)
CONFIG_LINK = re.compile(r"\[[\w.]+]\(\.\./\.\./configs/(?P<name>\w+\.yaml)\):")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def types_of(page: Path) -> list[str]:
    """The trainer types that the title of a page names."""
    title = TITLE.match(text_of(page))
    assert title, f"{page.name}: the title ends with the trainer types in parentheses"
    return re.findall(r"`(\w+)`", title["types"])


def section(page: Path, heading: str) -> str:
    """The text below a heading of the second level."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text_of(page), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no section '{heading}'"
    return found[1]


def rows(table: str) -> Iterator[list[str]]:
    """The cells of the rows of a table, the header first."""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not set("".join(cells)) <= set("- "):
            yield cells


def settings_rows(page: Path) -> Iterator[tuple[str, str, str]]:
    """Of each cell with a default in the page's table: trainer type, key, cell."""
    header, *others = rows(section(page, "Settings"))
    columns = {at: cell.strip("`") for at, cell in enumerate(header) if cell.strip("`") in TRAINERS}
    assert sorted(columns.values()) == sorted(types_of(page)), page.name
    for cells in others:
        for at, trainer_type in columns.items():
            yield trainer_type, cells[0].strip("`"), cells[at]


@functools.cache
def defaults(trainer_type: str) -> dict[str, Any]:
    loaded = parse_run_options({"behaviors": {"Walker": {"trainer_type": trainer_type}}})
    settings: dict[str, Any] = loaded.options.behaviors["Walker"].model_dump(mode="json")
    return {**settings, **settings["hyperparameters"]}


def value_at(settings: dict[str, Any], key: str) -> Any:
    """The value below a dotted key. Raises KeyError where there is none."""
    return functools.reduce(lambda value, part: value[part], key.split("."), settings)


def test_every_trainer_type_has_one_page() -> None:
    named = sorted(name for page in PAGES for name in types_of(page))
    assert named == sorted(set(TRAINERS) - {"random"})
    for name in TRAINERS:
        assert f"`{name}`" in text_of(OVERVIEW)
    for page in PAGES:
        assert f"]({page.name})" in text_of(OVERVIEW)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_defaults_are_those_of_the_models(page: Path) -> None:
    for trainer_type, key, cell in settings_rows(page):
        if cell == "–":
            with pytest.raises(KeyError):
                value_at(defaults(trainer_type), key)
            continue
        stated, default = yaml.safe_load(cell.strip("`")), value_at(defaults(trainer_type), key)
        assert (stated, type(stated)) == (default, type(default)), f"{key} of {trainer_type}"


def test_happo_has_the_defaults_of_mappo_but_for_those_on_its_page() -> None:
    own, shared = ({key for _, key, _ in settings_rows(FOLDER / page)} for page in ("happo.md", "mappo.md"))
    for key in shared - own:
        assert value_at(defaults("happo"), key) == value_at(defaults("mappo"), key)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_valid_and_equal_the_file_that_they_name(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = section(page, "Example")
    (text,) = (match["text"] for match in YAML.finditer(example))
    path = tmp_path / "example.yaml"
    path.write_text(text)
    assert cli.main(["check", str(path)]) == 0, capsys.readouterr().out
    read = yaml.safe_load(text)
    (behavior,) = read["behaviors"].values()
    assert behavior["trainer_type"] in types_of(page)
    if named := CONFIG_LINK.match(example.strip()):
        assert read == yaml.safe_load((REPOSITORY / "configs" / named["name"]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scores_stand_in_the_results(page: Path) -> None:
    text = section(page, "Scores")
    linked = re.findall(r"\((\.\./results/[\w-]+\.md)[#)]", text)
    measured = [cells for link in linked for cells in rows(text_of(FOLDER / link))]
    assert measured
    for configuration, _, score in [*rows(text)][1:]:
        link = re.fullmatch(
            r"\[`(\w+)`]\(\.\./\.\./(?:benchmarks/scores/)?configs/(\w+)\.yaml\)", configuration
        )
        assert link is not None, configuration
        name, file = link.groups()
        assert name == file
        assert any(cells[0] == f"`{name}`" and score in cells for cells in measured), f"{name}: {score}"
