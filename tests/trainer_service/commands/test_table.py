"""The checked-in table of flags, and the functions that it is written from."""

from __future__ import annotations

import argparse
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from trainer_service.commands.common.command import Flag, InGroup, Settings, add_arguments, call, read_command
from trainer_service.commands.common.output import CommandResult
from trainer_service.commands.parser import BY_HAND, COMMANDS
from trainer_service.commands.table import TABLE

Count = Annotated[int, Flag("so many", "N", at_least=1)]
CALLS: list[dict[str, Any]] = []


def walk(
    place: Annotated[str, Flag("where", "PLACE")],
    names: Annotated[Sequence[Path], Flag("what", "FILE")] = (),
    *,
    count: Count = 3,
    speed: Annotated[float | None, Flag("how fast", "X", either="how")] = None,
    way: Annotated[Literal["left", "right"], Flag("which way", either="how")] = "left",
    marks: Annotated[Sequence[str], Flag("where it was", "MARK", names="--mark")] = (),
    deterministic: Annotated[bool, Flag("draw", names="--stochastic"), InGroup("chance")] = True,
    code: Annotated[str | None, Flag("a code", "CODE", nargs="?", const="")] = None,
    steps: Annotated[int, Flag("most", "N"), Flag("none", names="--no-steps", const=0)] = 7,
    of_programs: int = 5,
    **settings: Annotated[Any, Settings("num_envs", "no_graphics")],
) -> CommandResult:
    """Walks
    somewhere.

    Not in the help.
    """
    CALLS.append({**locals()})
    return CommandResult({"place": place}, [f"at {place}"], 4)


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser, read_command(walk).arguments)
    return parser.parse_args(words)


def called(*words: str) -> dict[str, Any]:
    CALLS.clear()
    assert call(walk, parse(*words)) == 4
    return CALLS.pop()


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[walk.__module__])


def test_the_description_is_the_first_paragraph() -> None:
    assert read_command(walk).description == "Walks somewhere."


def test_defaults_are_the_functions_own() -> None:
    assert called("home") == {
        "place": "home", "names": [], "count": 3, "speed": None, "way": "left", "marks": [], "deterministic": True,
        "code": None, "steps": 7, "of_programs": 5, "settings": {},
    }  # fmt: skip


def test_every_kind_of_parameter_is_read() -> None:
    words = "home a b --count=5 --speed=1.5 --mark=x --mark=y --stochastic --code --no-steps --num-envs=2"
    assert called(*words.split()) == {
        "place": "home", "names": [Path("a"), Path("b")], "count": 5, "speed": 1.5, "way": "left",
        "marks": ["x", "y"], "deterministic": False, "code": "", "steps": 0, "of_programs": 5,
        "settings": {"num_envs": 2},
    }  # fmt: skip


@pytest.mark.parametrize("words", ["home --speed=1 --way=left", "home --way=up", ""])
def test_wrong_words_are_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        parse(*words.split())


@pytest.mark.parametrize(("words", "printed"), [([], "at home\n"), (["--json"], '{"place": "home"}\n')])
def test_a_result_is_printed_for_people_or_programs(
    words: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call(walk, parse("home", *words))
    assert capsys.readouterr().out == printed


def test_every_command_can_be_loaded() -> None:
    for place, _ in COMMANDS.values():
        assert callable(pkgutil.resolve_name(f"trainer_service.commands.{place}"))


def test_the_table_is_current() -> None:
    assert TABLE.keys() == COMMANDS.keys() - BY_HAND.keys()
    for name, entry in TABLE.items():
        place, _ = COMMANDS[name]
        assert entry == read_command(pkgutil.resolve_name(f"trainer_service.commands.{place}")), (
            f"{name}: run python tools/write_command_line_docs.py"
        )


@pytest.mark.process
def test_help_loads_no_command() -> None:
    program = (
        "import sys; from trainer_service.cli import main\n"
        "try: main(['learn', '--help'])\n"
        "finally: print({'torch', 'pydantic', 'grpc', 'numpy', 'rich'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "--num-envs" in said.stdout
    assert said.stdout.endswith("set()\n")
