"""What of a run is shared: names, options and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from every_trainer import actions_of, combinations, make_behavior, settings_for
from unlike_agents import make_team

from trainer_service.commands.share.package import is_shared, shared_options, write_package
from trainer_service.commands.share.share import result_of
from trainer_service.config import dump_run_options, parse_run_options
from trainer_service.learning.rollout.episode_scores import Score
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.specs import ActionSpec, MemberSpec, ObservationSpec

EVERY_TRAINER = list({combination.values[0]: combination for combination in combinations()}.values())
"""One combination of each trainer type, with memory and curiosity where it supports them."""
PRIVATE = ("/home/grace", "grace-workstation", "C:\\\\Users", "secret", "10.0.0.7", "6379")


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("Walker.onnx", True),
        ("Walker/checkpoint.safetensors", True),
        ("Walker/events.out.tfevents.1795770594.0", True),
        ("run_logs/training_status.json", True),
        ("Walker/events.out.tfevents.1795770594.grace-workstation.77.0", False),
        ("Walker/checkpoint.pt", False),
        ("Walker/replay.npz", False),
        ("Walker/Walker-500.safetensors", False),
        ("run_logs/trainer.log", False),
        ("run_logs/Player-0.log", False),
        ("run_logs/timers.json", False),
        ("report.html", False),
        (".lock", False),
        (".git/checkpoint.safetensors", False),
        ("a/Walker/checkpoint.safetensors", False),
        ("../checkpoint.safetensors", False),
        ("run_logs/checkpoint.safetensors", False),
    ],
)
def test_only_files_of_the_allow_list_are_shared(name: str, shared: bool) -> None:
    assert is_shared(name) is shared


def test_options_are_shared_without_machines_and_paths() -> None:
    walker = {
        "init_path": "/home/grace/results/old/Walker/checkpoint.pt",
        "behavioral_cloning": {"demo_path": "C:\\Users\\grace\\secret\\expert.demo"},
        "reward_signals": {"extrinsic": {}, "gail": {"demo_path": "~/secret/expert.demo"}},
    }
    given = {
        "behaviors": {"Walker": walker},
        "env_settings": {
            "env_path": "/home/grace/secret/Walker.x86_64",
            "env_args": ["--log", "/home/grace/secret.log"],
            "base_port": 6379,
        },
        "checkpoint_settings": {"run_id": "walker", "results_dir": "/home/grace/results"},
        "distributed": {"num_workers": 2, "ray_address": "10.0.0.7:6379"},
        "track": ["mlflow"],
        "metrics_port": 6379,
    }
    shared = shared_options(parse_run_options(given).options, "walker")
    text = dump_run_options(shared)
    assert not [word for word in PRIVATE if word in text]
    assert shared.env_settings.env_path == "Walker.x86_64"
    assert shared.checkpoint_settings.run_id == "walker"
    settings = shared.behaviors["Walker"]
    assert settings.behavioral_cloning is not None
    assert settings.behavioral_cloning.demo_path == "expert.demo"
    assert parse_run_options(yaml.safe_load(text)).options == shared


def packaged(checkpoint: Any, folder: Path) -> RunLayout:
    """The package of a run that has this checkpoint alone."""
    run, package = RunLayout(folder / "run"), RunLayout(folder / "package")
    save_checkpoint(checkpoint, run.checkpoint(checkpoint.behavior))
    run.configuration.write_text(yaml.safe_dump({"default_settings": {}}))
    write_package(run, package.path)
    return package


@pytest.mark.parametrize(("trainer_type", "memory", "curious"), EVERY_TRAINER)
def test_the_weights_of_every_trainer_travel_without_the_rest(
    trainer_type: str, memory: str | None, curious: bool, tmp_path: Path
) -> None:
    settings = settings_for(trainer_type, memory, curious)
    behavior = make_behavior(settings, actions_of(settings), seed=5)
    package = packaged(checkpoint_of(behavior), tmp_path)
    assert all(is_shared(path.relative_to(package.path).as_posix()) for path in package.path.rglob("*.*"))
    fresh = make_behavior(settings, actions_of(settings), seed=6)
    fresh.learner.load_state_dict(load_checkpoint(package.checkpoint("Probe")).algorithm)
    before, after = (each.learner.actor.policy_network() for each in (behavior, fresh))
    for mine, theirs in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_models_of_a_heterogeneous_group_are_shared_for_each_member(tmp_path: Path) -> None:
    members = [
        MemberSpec("Leader", (ObservationSpec("seen", (2,)),), ActionSpec(0, (2,)), 1),
        MemberSpec("Scout", (ObservationSpec("seen", (3,)),), ActionSpec(0, (3,)), 2),
    ]
    package = packaged(checkpoint_of(make_team(members, trainer_type="mappo")), tmp_path)
    (name,) = package.states()
    assert {path.name for path in package.path.glob("*.onnx")} == {"Leader.onnx", "Scout.onnx"}
    assert Policy(load_checkpoint(package.checkpoint(name))).members == ["Leader", "Scout"]


def test_the_interval_is_of_the_mean_and_groups_count_where_there_are_groups() -> None:
    result = result_of(Score((0.0, 2.0) * 50, (1,) * 100, (0,) * 100), seed=7, evaluated_at="now")
    assert (result["mean_reward"], result["std_reward"], result["n_eval_episodes"]) == (1.0, 1.0, 100)
    low, high = result["confidence_interval"]
    # ±1.96 σ/√n = ±0.196
    assert 0.75 < low < 0.85
    assert 1.15 < high < 1.25
    group = result_of(Score((1.0,) * 4, (1,) * 4, (0,) * 4, (5.0, 7.0), (0, 0)), seed=7, evaluated_at="now")
    assert (group["mean_reward"], group["of_groups"], group["n_eval_episodes"]) == (6.0, True, 2)
    assert result_of(Score((3.0,), (1,), (0,)), seed=7, evaluated_at="now")["confidence_interval"] is None
