"""Whole runs with rollout workers on a local Ray, as users start them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_service.running.runs.checkpoint import read_content

pytestmark = pytest.mark.usefixtures("shared_ray")

FEW = {"checkpoint_interval": 10**6}


@pytest.fixture
def learn(
    mlagents_style: Callable[..., Any], workplace: Path, repository: Path
) -> Callable[..., dict[str, Any]]:
    """Runs a bundled configuration with two workers and these settings instead of its own; gives the last value of
    each metric."""

    def run(
        config: str, env: str, *flags: str, settings: dict[str, Any], run_id: str = "run", **sections: Any
    ) -> dict[str, Any]:
        content = yaml.safe_load((repository / "configs" / f"{config}.yaml").read_text())
        for behavior in content["behaviors"]:
            content["behaviors"][behavior] = merged(
                content.get("default_settings", {}) | content["behaviors"][behavior], {**FEW, **settings}
            )
        content |= sections
        (workplace / "config.yaml").write_text(yaml.safe_dump(content))
        said = mlagents_style(
            "learn",
            "config.yaml",
            f"--env={env}",
            f"--run-id={run_id}",
            "--seed=1",
            "--num-workers=2",
            *flags,
        )
        assert said.code == 0, said.out + said.err
        return {
            name: value for each in summaries(run_id) for name, value in each.items() if value is not None
        }

    return run


def merged(some: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The first settings with those of the second in their places."""
    result = dict(some)
    for key, value in others.items():
        result[key] = merged(some.get(key) or {}, value) if isinstance(value, dict) else value
    return result


def summaries(run_id: str = "run") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("results", run_id, "metrics.jsonl").read_text().splitlines()]


def steps(behavior: str, run_id: str = "run") -> int:
    """Agent steps that the run's checkpoint is of."""
    saved = read_content(Path("results", run_id, behavior, "checkpoint.safetensors"))
    return int(saved["step"])


@pytest.mark.thorough
def test_ppo_reaches_the_far_end_of_the_corridor(learn: Callable[..., Any]) -> None:
    last = learn("basic", "sim:basic", settings={"max_steps": 7000, "summary_freq": 1000})
    assert last["mean_return"] > 0.9
    assert steps("Basic") == 7000
    assert all(each.get("Distributed/Workers") == 2 for each in summaries()[1:])


SAC = {"max_steps": 301, "summary_freq": 100, "hyperparameters": {"buffer_init_steps": 100}}


def test_sac_learns_from_a_replay_buffer(learn: Callable[..., Any]) -> None:
    last = learn("pendulum_sac", "gym:Pendulum-v1", settings=SAC)
    assert last["q1_loss"] > 0
    assert steps("Pendulum-v1") == 301
