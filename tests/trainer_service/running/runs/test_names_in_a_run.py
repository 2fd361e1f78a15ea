"""No behavior's name leads to a file or folder of its run, nor to one of another behavior."""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainer_service.running.runs.files import temporary_path
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.names import LONGEST_NAME, name_problem, same_folder

REPOSITORY = Path(__file__).parents[4]
RUN = RunLayout(Path("results/run"))
OF_A_RUN = {
    "lock", "configuration", "metrics", "evaluations", "film", "report", "run_logs", "status", "timers", "trainer_log",
    "player_log", "tracker", "next_set_aside", "job_log", "suggestion", "bundle",
    "replaced", "removed",
}  # fmt: skip
OF_A_BEHAVIOR = {"behavior", "checkpoint", "best", "replay", "replay_rows", "numbered", "final_model"}


def paths_of_a_run(layout: RunLayout) -> Iterator[Path]:
    """What a run writes whatever its behaviors are called."""
    yield from (layout.lock, layout.configuration, layout.metrics, layout.evaluations, layout.report)
    yield from (layout.run_logs, layout.bundle, layout.status, layout.timers, layout.trainer_log)
    yield from (layout.player_log(0), layout.tracker("wandb"), layout.job_log, layout.suggestion)
    yield from (layout.film(0), layout.film(500_000), layout.next_set_aside(), layout.path / "set-aside-12")
    yield from (layout.path / "wandb", layout.replaced, layout.removed)


def paths_of_a_behavior(layout: RunLayout, name: str) -> Iterator[Path]:
    """What a run writes for a behavior, where --resume sets files aside too."""
    yield from (layout.behavior(name), layout.checkpoint(name), layout.best(name), layout.replay(name))
    yield layout.best(name).with_suffix(".onnx")
    yield layout.final_model(name)
    for step in (0, 500, 2**31):
        yield from (layout.replay_rows(name, step, kind, 2**31) for kind in ("steps", "finals"))
        yield from (layout.numbered(name, step), layout.numbered(name, step, ".onnx"))


def written(paths: Iterable[Path]) -> set[Path]:
    """Every path, and where its content is written first."""
    return {each for path in paths for each in (path, temporary_path(path))}


def entries(paths: Iterable[Path]) -> set[str]:
    """The names directly in the run's folder that these paths take."""
    return {path.relative_to(RUN.path).parts[0] for path in written(paths)}


def on_macos(paths: Iterable[Path]) -> set[str]:
    """The entries as a file system compares them that ignores case, and how an accent is composed."""
    return {unicodedata.normalize("NFD", entry).casefold() for entry in entries(paths)}


def test_every_path_of_the_layout_is_walked_here() -> None:
    made = {
        name
        for name, member in inspect.getmembers(RunLayout, inspect.isfunction)
        if inspect.signature(member).return_annotation == "Path"
    }
    found = made | {name for name, value in vars(RUN).items() if isinstance(value, Path)} - {"path"}
    assert found == OF_A_RUN | OF_A_BEHAVIOR


@pytest.mark.parametrize("change", [str, str.upper, str.title])
def test_no_behavior_has_the_name_of_a_file_of_the_run(change: Callable[[str], str]) -> None:
    accepted = [name for name in entries(paths_of_a_run(RUN)) if name_problem(change(name)) is None]
    assert accepted == []


def test_no_behavior_has_the_name_of_a_file_of_another() -> None:
    names = entries(paths_of_a_behavior(RUN, "3DBall")) - {"3DBall"}
    names |= {RUN.numbered("3DBall", 500, suffix).name for suffix in (".safetensors", ".onnx")}
    assert "3DBall.onnx" in names
    assert [name for name in names if name_problem(name) is None] == []


PARTS = [
    "A", "a", "ä", "a\u0308", "ß", "ss", "-", "500", "-500", ".", ".onnx", ".safetensors", ".tmp", ".lock", "set-aside",
    "-1", "film-", "5", ".gif", "run_logs", "report", ".html", "metrics.jsonl", "best", "checkpoint", "tfevents", " ",
]  # fmt: skip
NAMES = st.one_of(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
)


@given(NAMES, NAMES)
def test_two_behaviors_never_write_to_one_path(one: str, other: str) -> None:
    assume(one != other and name_problem(one) is None and name_problem(other) is None)
    shared = on_macos(paths_of_a_behavior(RUN, one)) & on_macos(paths_of_a_behavior(RUN, other))
    assert not shared or same_folder(one, [other])
    assert not on_macos(paths_of_a_behavior(RUN, one)) & on_macos(paths_of_a_run(RUN))


def test_the_longest_name_leaves_room_for_every_suffix() -> None:
    paths = written(paths_of_a_behavior(RUN, "x" * LONGEST_NAME))
    assert max(len(path.name) for path in paths) <= 255 - len("1234567")  # longer process ids there may be
