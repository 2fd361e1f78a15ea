"""Weights & Biases: what is said to a stand-in for it, and what it keeps offline where it is installed."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_service.errors import UserError
from trainer_service.running.metrics import Series, Summary
from trainer_service.running.metrics.trackers import TrackedRun
from trainer_service.running.metrics.trackers.wandb_writer import WandbWriter


def tracked(folder: Path, *, resumed: bool = False) -> TrackedRun:
    return TrackedRun(
        "fast", folder, {"behaviors": {"Ball": {"max_steps": 7}}}, resumed, folder / "memory.json"
    )


def summary(step: int, value: float) -> Summary:
    series = {"Losses/Policy Loss": Series.of(value)}
    return Summary(behavior="Ball", step=step, wall_s=1.0, steps_per_s=1.0, series=series)


class StandIn:
    """Writes down how it is called, as the package and as its run."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.started: list[dict[str, Any]] = []
        self.mode = "offline"
        self.Settings = lambda **values: values
        self.Video = lambda path, format: ("film", path, format)

    def setup(self) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(mode=self.mode))

    def login(self, *, prompt: bool) -> bool:
        assert not prompt
        return False

    def init(self, **values: Any) -> Any:
        self.started.append(values)
        note = self.calls.append
        return SimpleNamespace(
            dir="somewhere/run/files",
            offline=True,
            define_metric=lambda name, **how: note(("define", name, how)),
            log=lambda values: note(("log", values)),
            finish=lambda exit_code: note(("finish", exit_code)),
        )


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return stand_in


def test_values_are_drawn_over_the_behaviors_own_steps(wandb: StandIn, tmp_path: Path) -> None:
    writer = WandbWriter(tracked(tmp_path))
    writer.open()
    writer.write(summary(1000, 0.5))
    writer.write_evaluation(summary(2000, 0.25))
    writer.write_film("Ball", 2000, tmp_path / "film-2000.gif")
    writer.close("interrupted")
    assert wandb.calls == [
        ("define", "Ball/Step", {"hidden": True}),
        ("define", "Ball/*", {"step_metric": "Ball/Step"}),
        ("log", {"Ball/Step": 1000, "Ball/Losses/Policy Loss": 0.5}),
        ("log", {"Ball/Step": 2000, "Ball/Losses/Policy Loss": 0.25}),
        ("log", {"Ball/Step": 2000, "Ball/Videos_Test": ("film", str(tmp_path / "film-2000.gif"), "gif")}),
        ("finish", 255),
    ]
    (started,) = wandb.started
    assert (started["name"], started["project"]) == ("fast", "trainer-service")
    assert started["config"] == {"behaviors": {"Ball": {"max_steps": 7}}}


def test_a_resumed_run_goes_on_under_its_id(
    wandb: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for resumed in (False, True, False):
        WandbWriter(tracked(tmp_path, resumed=resumed)).open()
    first, again, anew = (each["id"] for each in wandb.started)
    assert first == again != anew
    assert {each["project"] for each in wandb.started} == {"mine"}


def test_nobody_is_asked_to_log_in(wandb: StandIn, tmp_path: Path) -> None:
    wandb.mode = "online"
    with pytest.raises(UserError, match="not logged in: run 'wandb login'"):
        WandbWriter(tracked(tmp_path)).open()
    assert not wandb.started
