"""Callbacks: what they are told, what they can change, and what becomes of their mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import checkpoint, metrics

import trainer_service
from trainer_service.errors import UserError
from trainer_service.learning.rollout.episode_scores import Evaluation
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.callbacks import (
    METHODS,
    Callback,
    CallbackError,
    CallbackList,
    EndedEpisodes,
    RunView,
    SimulatorStep,
    load_callback,
)

SETTINGS: Mapping[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 128},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 400,
    "time_horizon": 16,
    "summary_freq": 100,
    "checkpoint_interval": 200,
}


@pytest.fixture
def train(processes: None, workplace: Path) -> Callable[..., trainer_service.Outcome]:
    """Trains a small policy from Python."""

    def run(*callbacks: Callback, env: str = "sim:basic --agents 2", run_id: str = "called", **more: Any):
        scene, *args = env.split()
        options = trainer_service.parse_run_options(
            {
                "default_settings": SETTINGS,
                "env_settings": {"env_path": scene, "seed": 3, "env_args": args},
                "checkpoint_settings": {"run_id": run_id},
                **more,
            }
        ).options
        return trainer_service.train(options, callbacks=callbacks)

    return run


def weights(run_id: str) -> torch.Tensor:
    state = checkpoint(run_id, "Basic")["algorithm"]
    return torch.cat([each.flatten() for each in state["network"].values()])


class Diary(Callback):
    """Writes everything down."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.returns: list[float] = []
        self.group_returns: list[float] = []
        self.steps = 0
        self.actions = {"step": 0, "evaluation_step": 0}
        self.metrics: list[set[str]] = []
        self.evaluations: list[Evaluation] = []
        self.checkpoints: list[Path] = []

    def on_run_start(self, run: RunView) -> None:
        self.told.append("run_start")
        assert run.steps == {}

    def on_run_end(self, run: RunView) -> None:
        self.told.append("run_end")
        self.steps_at_the_end = run.steps

    def on_step(self, run: RunView, behavior: str, step: SimulatorStep) -> None:
        self._hear("step", step)

    def on_evaluation_step(self, run: RunView, behavior: str, step: SimulatorStep) -> None:
        self._hear("evaluation_step", step)

    def _hear(self, word: str, step: SimulatorStep) -> None:
        self.told.append(word)
        self.actions[word] += len(step.actions)
        assert len(step.actions) == len(step.batch) - step.batch.num_terminal

    def on_collection(self, run: RunView, behavior: str, trajectories: Trajectories) -> None:
        self.told.append("collection")
        self.steps += len(trajectories)

    def on_update_start(self, run: RunView, behavior: str) -> None:
        self.told.append("update_start")

    def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
        self.told.append("update_end")
        self.metrics.append(set(metrics))

    def on_episode_end(self, run: RunView, behavior: str, episodes: EndedEpisodes) -> None:
        self.told.append("episode_end")
        self.returns += episodes.returns.tolist()
        self.group_returns += episodes.group_returns.tolist()
        assert len(episodes.returns) == len(episodes.lengths)
        if len(episodes.group_returns):
            run.add_statistic(behavior, "Mine/Episodes", len(episodes.returns) / len(episodes.group_returns))

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        self.told.append("evaluation")
        self.evaluations.append(evaluation)
        if evaluation.is_best:
            assert (run.folder / evaluation.behavior / "best.safetensors").is_file()

    def on_checkpoint(self, run: RunView, behavior: str, path: Path) -> None:
        self.told.append("checkpoint")
        self.checkpoints.append(path)
        assert path.is_file()


def test_a_callback_hears_of_everything_in_order(train) -> None:
    diary = Diary()
    outcome = train(diary, env="sim:spread --copies 2", evaluation={"every_steps": 150, "episodes": 3})
    assert (diary.told[0], diary.told[-1]) == ("run_start", "run_end")
    assert set(diary.told) == {method.removeprefix("on_") for method in METHODS if method.startswith("on_")}
    starts = [i for i, word in enumerate(diary.told) if word == "update_start"]
    assert starts
    assert all(diary.told[i + 1] == "update_end" for i in starts)
    assert all("Losses/Policy Loss" in metrics for metrics in diary.metrics)
    assert diary.steps_at_the_end == outcome.steps
    assert 0 < diary.steps <= outcome.steps["Spread"]
    assert diary.actions["step"] == outcome.steps["Spread"]  # the last observations are not acted on
    assert diary.actions["evaluation_step"] >= 2 * sum(diary.evaluations[0].score.lengths)
    assert [evaluation.step for evaluation in diary.evaluations] == [150, 300]
    assert diary.evaluations[0].score.group_returns
    assert [path.name for path in diary.checkpoints] == ["Spread-204.safetensors", "Spread-402.safetensors"]
    reported = metrics("called")
    assert len(diary.returns) >= sum(summary["episodes"] for summary in reported) > 0
    assert np.sum(diary.returns) == pytest.approx(np.sum(diary.group_returns), rel=1e-6)
    own = [summary.get("Mine/Episodes") for summary in reported]
    assert own == [3.0 if summary["episodes"] else None for summary in reported]


class Generous(Callback):
    def shape_rewards(self, run: RunView, behavior: str, trajectories: Trajectories) -> np.ndarray:
        return trajectories.rewards + 7.0


class Witness(Callback):
    """Sees raw rewards when they are collected, and what others made of them when it may shape them too."""

    def __init__(self) -> None:
        self.raw: list[float] = []
        self.shaped: list[float] = []

    def on_collection(self, run: RunView, behavior: str, trajectories: Trajectories) -> None:
        self.raw += trajectories.rewards.tolist()

    def shape_rewards(self, run: RunView, behavior: str, trajectories: Trajectories) -> np.ndarray:
        self.shaped += trajectories.rewards.tolist()
        return trajectories.rewards


def test_shaped_rewards_are_trained_on_and_never_reported(train) -> None:
    witness = Witness()
    train(Generous(), witness, run_id="shaped")
    train(run_id="plain")
    np.testing.assert_allclose(witness.shaped, np.array(witness.raw) + 7.0, rtol=1e-6)
    assert not torch.equal(weights("shaped"), weights("plain"))
    for shaped, plain in zip(metrics("shaped")[:1], metrics("plain")[:1], strict=True):
        # Until the first update both did the same, and are said to have earned the same.
        for key in ("episodes", "mean_return", "std_return", "mean_length"):
            assert shaped[key] == plain[key]
    assert all(summary["mean_return"] is None or summary["mean_return"] < 1 for summary in metrics("shaped"))


class Satisfied(Callback):
    def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
        run.stop("one update is enough")


def test_a_callback_may_stop_a_run_that_is_resumed_later(train, caplog) -> None:
    with caplog.at_level("INFO", logger="trainer_service"):
        outcome = train(Satisfied())
    assert outcome.interrupted
    assert 0 < outcome.steps["Basic"] < 400
    assert "A callback stops the run: one update is enough" in caplog.messages
    saved = {"run_id": "called", "resume": True}
    assert train(checkpoint_settings=saved).steps["Basic"] >= 400


class Clumsy(Callback):
    """Fails at its first update."""

    def __init__(self) -> None:
        self.told_of_the_end = False

    def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
        raise KeyError("Losses/No such thing")

    def on_run_end(self, run: RunView) -> None:
        self.told_of_the_end = True


class Ended(Callback):
    """Knows of the end of its run."""

    told_of_the_end = False

    def on_run_end(self, run: RunView) -> None:
        self.told_of_the_end = True


def test_a_failing_callback_is_named_and_the_run_saved(train, caplog) -> None:
    clumsy, other = Clumsy(), Ended()
    expected = r"callback .*Clumsy\.on_update_end raised KeyError: 'Losses/No such thing'"
    with pytest.raises(CallbackError, match=expected):
        train(clumsy, other)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "Clumsy.on_update_end failed" in record.getMessage()
    assert 'raise KeyError("Losses/No such thing")' in caplog.text
    assert not clumsy.told_of_the_end
    assert other.told_of_the_end
    saved = {"run_id": "called", "resume": True}
    assert Path("results/called/Basic/checkpoint.safetensors").is_file()
    assert train(checkpoint_settings=saved).steps["Basic"] >= 400


@pytest.mark.parametrize(
    ("shaped", "got"),
    [
        (lambda rewards: rewards[:-1], r"got shape \(\d+,\)"),
        (lambda rewards: rewards * np.nan, "got NaN or infinities"),
        (lambda rewards: "much", "got 'much'"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(train, shaped, got: str) -> None:
    class Wrong(Callback):
        def shape_rewards(self, run: RunView, behavior: str, trajectories: Trajectories) -> Any:
            return shaped(trajectories.rewards)

    with pytest.raises(CallbackError, match=rf"Wrong\.shape_rewards: expected \d+ finite rewards.*{got}"):
        train(Wrong())


def test_what_is_no_callback_is_named() -> None:
    class Typo(Callback):
        def shape_reward(self) -> None:
            """Is never called."""

    with pytest.raises(
        UserError, match=r"Typo: no run calls 'shape_reward' \(did you mean 'shape_rewards'\?\)"
    ):
        CallbackList([Typo()])
    with pytest.raises(UserError, match=r"derived from trainer_service\.Callback, got 7"):
        CallbackList([7])  # type: ignore[list-item]


MODULE = """
from trainer_service import Callback

class Needy(Callback):
    def __init__(self, something):
        pass

class Stranger:
    pass
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("callbacks_of_a_test", "expected MODULE:CLASS, such as my_callbacks:EarlyStop"),
        ("callbacks_of_a_test:Quiet", "has no attribute 'Quiet'"),
        ("callbacks_of_a_test:Stranger", "expected a class derived from trainer_service.Callback"),
        ("callbacks_of_a_test:Needy", "TypeError"),
        ("broken_callbacks:Any", "SyntaxError"),
        ("ending_callbacks:Any", "it called os._exit(0), which would end the trainer"),
    ],
)
def test_a_callback_that_cannot_be_had_is_named(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    (workplace / "callbacks_of_a_test.py").write_text(MODULE)
    (workplace / "broken_callbacks.py").write_text("def :\n")

    (workplace / "ending_callbacks.py").write_text("import os; os._exit(0)\n")
    monkeypatch.syspath_prepend(workplace)
    with pytest.raises(UserError, match=re.escape(expected)):
        load_callback(name)
