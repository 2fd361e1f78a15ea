"""Curves under the names of earlier libraries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trainer_service.cli import main


@pytest.mark.parametrize("trainer_type", ["vdn", "idqn"])
def test_metrics_are_written_under_both_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer_type: str
) -> None:
    monkeypatch.chdir(tmp_path)
    behavior = {
        "trainer_type": trainer_type,
        "hyperparameters": {
            "batch_size": 16,
            "buffer_size": 2048,
            "steps_per_update": 32,
            "replay": {"type": "prioritized"},
        },
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "time_horizon": 25,
        "max_steps": 1200,
        "summary_freq": 200,
    }
    evaluation = {"every_steps": 400, "episodes": 2}
    Path("config.yaml").write_text(
        yaml.safe_dump({"behaviors": {"Switch2": behavior}, "evaluation": evaluation})
    )
    flags = ["--run-id=named", "--env=sim:switch2", "--hooks=published_names"]
    assert main(["learn", "config.yaml", *flags, "--env-args", "--copies", "4"]) == 0
    folder = tmp_path / "results" / "named"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    pairs = {
        "value_loss": "_overall/critic_loss",
        "Replay/Beta": "_overall/beta",
        "exploration_rate": "_overall/exploration_rate",
        "mean_group_return": "_overall/train_reward",
        "mean_length": "_overall/train_ep_steps",
        "mean_return": "Train-Results/Episode-Rewards",
    }
    if trainer_type == "idqn":
        pairs |= {
            f"agent_{agent_index}_value_loss": f"agent_{agent_index}/critic_loss" for agent_index in range(2)
        }
    for ours, theirs in pairs.items():
        told = [line for line in lines if line.get(ours) is not None]
        assert told, ours
        for line in told:
            assert line[theirs] == pytest.approx(line[ours], rel=1e-5), (ours, line["step"])
    for line in lines:
        if "_overall/train_reward" in line:
            assert {"agent_0/train_reward", "agent_1/train_reward"} <= set(line), line["step"]
    scores = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    for name, key in (("Mean", "mean_return"), ("Std", "std_return")):
        tag = f"Test-Results/Episode-Rewards/{name}-Score"
        told = [line[tag] for line in lines if tag in line]
        assert told == pytest.approx([score[key] for score in scores][: len(told)])
        assert told
    found = [line["_overall/eval_reward"] for line in lines if "_overall/eval_reward" in line]
    assert found == pytest.approx([score["mean_group_return"] for score in scores][: len(found)])
    assert found
    own = [[score["places"][agent_index]["mean_return"] for score in scores] for agent_index in ("0", "1")]
    for agent_index in (0, 1):
        told = [
            line[f"agent_{agent_index}/eval_reward"]
            for line in lines
            if f"agent_{agent_index}/eval_reward" in line
        ]
        assert told == pytest.approx(own[agent_index][: len(told)]), agent_index
        assert told
    assert [sum(both) for both in zip(*own, strict=True)] == pytest.approx(
        [score["mean_group_return"] for score in scores]
    )
    assert all(0 < line["_overall/test_ep_steps"] <= 50 for line in lines if "_overall/test_ep_steps" in line)
