"""Budgets of environment steps: what is counted, where runs end, and how they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from run_files import checkpoint, metrics
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import trainer_service
from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.status.run_status import run_status
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.registry import used_share
from trainer_service.running.collection.router import EnvSteps

RATE = 0.01
SMALL: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 120, "num_epoch": 1, "learning_rate": RATE},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 100_000,
    "time_horizon": 10,
    "summary_freq": 120,
    "checkpoint_interval": 100_000,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump({"default_settings": SMALL}))
    return path


def saved(behavior: str, run_id: str = "ppo") -> tuple[int, int]:
    """Agent steps and environment steps of the newest checkpoint."""
    found = checkpoint(run_id, behavior)
    return found["step"], found["env_steps"]


@pytest.mark.parametrize(
    ("env", "arguments", "steps"),
    [
        ("sim:spread", ("--copies", "4", "--agents-per-copy", "3"), {"Spread": 300}),
        ("sim:goal", ("--copies", "5", "--agents-per-copy", "3"), {"Keeper": 100, "Player": 200}),
        ("gym:CartPole-v1", ("--agents", "5"), {"CartPole-v1": 100}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_ends_after_the_joint_steps_of_all_copies(
    mlagents_style, config: Path, env: str, arguments: tuple[str, ...], steps: dict[str, int]
) -> None:
    said = mlagents_style(
        "learn", config, f"--env={env}", "--seed=1", "--max-env-steps=100", "--env-args", *arguments
    )
    assert said.code == 0, said.err
    assert said.out.count("The run ends after 100 environment steps, of 100 (max_env_steps).") == 1
    assert {name: saved(name) for name in steps} == {name: (step, 100) for name, step in steps.items()}
    assert all(Path("results", "ppo", f"{name}.onnx").is_file() for name in steps)
    status = run_status(read_run(Path("results/ppo")))
    assert status.ended_by == "its budget of environment steps (max_env_steps), which is used up"


class Short(gymnasium.Env[Any, Any]):
    """Episodes of three steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.zeros(1, np.float32), 0.1, self.time == 3, False, {}


class Delayed(Short):
    """The same, with a longer first episode, so that copies end at different times."""

    lives = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, _, cut, info = super().step(action)
        ends = self.time == (4 if self.lives == 0 else 3)
        self.lives += ends
        return seen, reward, ends, cut, info


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_copy_that_begins_anew_by_an_exchange_makes_no_step(mode: AutoresetMode) -> None:
    def make(num_envs: int = 2) -> Any:
        return SyncVectorEnv([Short, Delayed], autoreset_mode=mode)

    outcome = trainer_service.train({"default_settings": SMALL}, env=make, max_env_steps=100, seed=1)
    ((behavior, step),) = outcome.steps.items()
    assert saved(behavior) == (step, step)
    assert step in (100, 101)


def test_metrics_have_both_counts_and_schedules_follow_the_budget(mlagents_style, config: Path) -> None:
    flags = ("--env=sim:spread", "--seed=1", "--max-env-steps=200", "--env-args", "--copies=1")
    assert mlagents_style("learn", config, *flags).code == 0
    lines = metrics("ppo")
    assert [(line["step"], line["env_steps"]) for line in lines] == [(120 * i, 40 * i) for i in range(1, 6)]
    # Updates come once the segments of 120 steps are complete: at the environment steps 45, 85, 125 and 170.
    rates = [line["learning_rate"] for line in lines[1:]]
    assert rates == pytest.approx([RATE * (1 - step / 200) for step in (45, 85, 125, 170)], rel=1e-6)

    columns = trainer_service.load_metrics("ppo")
    assert columns["env_steps"].tolist() == [40, 80, 120, 160, 200]
    events = EventAccumulator("results/ppo/Spread")
    events.Reload()
    assert [event.value for event in events.Scalars("Environment/Env Steps")] == [40, 80, 120, 160, 200]


def test_a_resumed_run_counts_on_exactly(mlagents_style, config: Path) -> None:
    constant = {
        **SMALL,
        "hyperparameters": {**SMALL["hyperparameters"], "learning_rate_schedule": "constant"},
    }
    config.write_text(yaml.safe_dump({"default_settings": constant}))

    def learn(run_id: str, budget: int, *flags: str) -> None:
        said = mlagents_style(
            "learn", config, f"--run-id={run_id}", "--env=sim:spread", "--seed=1", f"--max-env-steps={budget}",
            *flags, "--env-args", "--copies=4", "--steps=10",
        )  # fmt: skip
        assert said.code == 0, said.err

    learn("straight", 160)
    learn("parted", 80)
    assert saved("Spread", "parted") == (240, 80)
    learn("parted", 80, "--resume")
    assert saved("Spread", "parted") == (240, 80)  # its budget is used up: it ends before it acts
    learn("parted", 160, "--resume")
    assert saved("Spread", "parted") == saved("Spread", "straight") == (480, 160)
    counts = [[(row["step"], row["env_steps"]) for row in metrics(run)] for run in ("parted", "straight")]
    assert counts[0] == counts[1] == [(120, 40), (240, 80), (360, 120), (480, 160)]


def test_the_budget_that_is_further_along_places_schedules(make_behavior, monkeypatch) -> None:
    behavior: Behavior = make_behavior(max_steps=1000)
    behavior.env_steps = EnvSteps(budget=100)
    seen: list[tuple[int, int]] = []

    def update(step: int) -> dict[str, float]:
        seen.append((step, behavior.learner.schedule_lead))
        return {}

    monkeypatch.setattr(behavior.learner, "update", update)
    for step, taken in ((300, 20), (300, 50), (990, 99), (400, 250)):
        behavior.step, behavior.env_steps.taken = step, taken
        behavior.update()
        assert used_share(behavior) == pytest.approx(max(step / 1000, min(taken / 100, 1)))
    assert seen == [(300, 0), (500, 200), (990, 0), (1000, 600)]
