"""A cell of a notebook that trains: what it shows, and what interrupting it leaves."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from notebook_cells import run_cell
from notebook_display import CellDisplay

import trainer_service

pytestmark = pytest.mark.process

_CELL = """
import trainer_service

settings = {
    "trainer_type": "ppo", "max_steps": 400, "summary_freq": 100,
    "hyperparameters": {"batch_size": 64, "buffer_size": 128},
}
outcome = trainer_service.train(settings, env=Walk, run_id="cell", results_dir=folder, resume=resume, seed=1)
"""


def run(walk: type[Any], folder: Path, *, resume: bool = False) -> trainer_service.Outcome:
    """Runs the cell in its notebook, where Walk and a folder for results are defined."""
    names: dict[str, Any] = {"__name__": "__main__", "Walk": walk, "folder": folder, "resume": resume}
    exec(_CELL, names)
    outcome: trainer_service.Outcome = names["outcome"]
    return outcome


def interrupted_walk(at: int, *, twice: bool = False, raised: bool = False) -> type[Any]:
    """An environment during whose step somebody presses the stop button."""
    walk: type[Any] = run_cell()["Walk"]

    class Walk(walk):  # type: ignore[misc]
        steps = 0

        def step(self, action: Any) -> Any:
            Walk.steps += 1
            if Walk.steps == at:
                if raised:
                    raise KeyboardInterrupt
                signal.raise_signal(signal.SIGINT)
                while twice:
                    signal.raise_signal(signal.SIGINT)  # until it counts as a second one
            return super().step(action)

    return Walk


def test_one_output_shows_the_progress_and_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    display = CellDisplay(monkeypatch)
    run(run_cell()["Walk"], tmp_path)
    html, text = display.shown[-1]["text/html"], display.shown[-1]["text/plain"]
    assert "400 / 400" in text
    assert html.count("<polyline") == 1
    assert html.count("<title>Walk: ") == 4, "a point for each summary"
    assert "Walk. Step: 400" in capfd.readouterr().out


def test_interrupting_the_kernel_returns_the_outcome_of_a_saved_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = CellDisplay(monkeypatch)
    handler = signal.getsignal(signal.SIGINT)
    outcome = run(interrupted_walk(at=250), tmp_path)
    assert outcome.interrupted
    assert trainer_service.load_policy(outcome).step == outcome.steps["Walk"] == 250
    assert display.shown[-1]["text/html"].count("<title>Walk: ") == 2
    assert signal.getsignal(signal.SIGINT) is handler
    display.shown.clear()  # another cell
    assert run(run_cell()["Walk"], tmp_path, resume=True).steps["Walk"] >= 400


@pytest.mark.parametrize("way", ["twice", "raised"])
def test_a_keyboard_interrupt_is_raised_when_the_run_is_saved(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = CellDisplay(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run(interrupted_walk(at=250, **{way: True}), tmp_path)
    assert trainer_service.load_policy(tmp_path / "cell").step == 249
    display.shown.clear()
    outcome = run(run_cell()["Walk"], tmp_path, resume=True)
    assert not outcome.interrupted
    assert outcome.steps["Walk"] >= 400
