"""Every trainer type is trained, resumed, scored and exported, as users do.

A new type is covered by being registered: its settings tell what it is, and its scene is the first one that it takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_trainer import scene_of, settings_of
from exported_models import assert_model_acts_as_policy

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import (
    GroupOffPolicySettings,
    MADDPGSettings,
    VDNSettings,
)
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.replay import lent_rows
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import load_replay, restore
from trainer_service.running.policy import load_policy
from trainer_service.running.runs.checkpoint import load_checkpoint
from trainer_service.running.runs.replay_file import ReplayFile

METRICS: Mapping[str, frozenset[str]] = {
    "epsilon": frozenset({"policy_loss", "entropy", "clip_fraction", "kl_divergence"}),
    "init_entcoef": frozenset({"policy_loss", "entropy", "q1_loss", "q2_loss"}),
    "n_step": frozenset({"td_error", "mean_q"}),
    "noise": frozenset({"policy_loss"}),
    "exploration_initial": frozenset({"exploration_rate"}),
}
"""Metrics of all types that have a hyperparameter, by its name; a value loss and a learning rate are everyone's."""
PRIORITIES = frozenset({"Replay/Beta", "Replay/Largest Priority"})
AGENT_LOSSES = frozenset({"agent_0_value_loss", "agent_1_value_loss"})


def metrics_of(trainer_type: str) -> set[str]:
    """Returns the metrics named above that a run of this type writes."""
    settings = settings_of(trainer_type)
    hyper = TrainerSettings.model_validate(settings).hyperparameters
    if not hyper.learns:
        return set()
    names = {"value_loss", "learning_rate"}
    names |= {name for key, its in METRICS.items() if key in type(hyper).model_fields for name in its}
    if "replay" in settings["hyperparameters"]:
        names |= PRIORITIES
    # A mixer knows the error of the whole group alone.
    if isinstance(hyper, GroupOffPolicySettings) and not isinstance(hyper, VDNSettings):
        names |= AGENT_LOSSES
    return names


def counts(replay: Path) -> np.ndarray:
    """Steps that were recorded and updates that were made, over the whole run. [2]"""
    with np.load(replay, allow_pickle=False) as arrays:
        found: np.ndarray = arrays["schedules"][0, :2]
    return found


def assert_buffer_is_loaded_as_it_was_saved(replay: Path) -> None:
    saved: dict[str, np.ndarray] = {}
    ReplayFile(replay).load(saved.update)
    checkpoint = load_checkpoint(replay.with_name("checkpoint.safetensors"))
    compute = Compute(torch.device("cpu"), 1)
    behavior = Behavior(checkpoint.behavior, checkpoint.spec, checkpoint.settings, compute)
    restore(behavior, checkpoint)
    load_replay(behavior, replay)
    loaded = behavior.learner.replay_state() or {}
    assert loaded.keys() == {name for name in saved if not name.startswith("saved.")}
    for name, array in loaded.items():
        before = saved[name]
        assert (array.dtype, array.shape, array.tobytes()) == (before.dtype, before.shape, before.tobytes())


LIKE_ANOTHER = ("dqn_share", "dqn_consensus", "idqn", "vdn", "happo", "coma", "ddpg", "crossq")
"""Types whose code differs in a learner or two from that of another type, which ``make test`` runs."""


@pytest.mark.parametrize(
    "trainer_type",
    [pytest.param(each, marks=[pytest.mark.thorough] * (each in LIKE_ANOTHER)) for each in ALGORITHMS],
)
def test_it_is_trained_resumed_scored_and_exported(
    mlagents_style,
    configure,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    trainer_type: str,
) -> None:
    monkeypatch.setattr(lent_rows, "BLOCK_BYTES", 2**12)
    scene, name = scene_of(trainer_type)
    settings = settings_of(trainer_type)
    replays = "save_replay_buffer" in settings["hyperparameters"]
    hyper = TrainerSettings.model_validate(settings).hyperparameters
    groups = hyper.learns_by_group
    run = (
        "--run-id=run",
        f"--env=sim:{scene}",
        "--seed=1",
        *(["--env-args", "--copies=4"] if groups else []),
    )
    folder = workplace / "results" / "run"
    replay = folder / name / "replay.npz"

    def learn(max_steps: int, *flags: str) -> tuple[Any, list[dict[str, Any]]]:
        config = configure(name, **settings, max_steps=max_steps)
        said = mlagents_style("learn", config, *flags, *run)
        assert said.code == 0, said.err
        return said, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    _, before = learn(400)
    assert replay.exists() == replays
    counts_before = counts(replay) if replays else np.zeros(2)
    said, after = learn(600, "--resume")
    assert f"Resuming '{name}' from step 4" in said.out
    assert (f"'{name}' continues with its replay buffer." in said.out + said.err) == replays
    assert after[-1]["step"] >= 600 > before[-1]["step"] >= 400
    if replays:  # 200 steps, of which some are not recorded yet, and 16 for each update
        assert (counts(replay) - counts_before >= (100, 6)).all()
        assert len([*replay.parent.glob("replay-*-steps-*.npz")]) > 2
        assert_buffer_is_loaded_as_it_was_saved(replay)
    told = set().union(*after)
    named = {"value_loss", "learning_rate", *PRIORITIES, *AGENT_LOSSES}.union(*METRICS.values())
    assert told & named == metrics_of(trainer_type)

    said = mlagents_style("evaluate", "run", "--episodes=4", "--json")
    assert said.code == 0, said.err
    score = json.loads(said.out)["behaviors"][name]
    assert score["episodes"] == 4
    assert (score["mean_group_return"] is not None) == groups
    if trainer_type != "random":  # its actions are drawn, whatever is asked for
        # Models of maddpg draw choices, as its actors do while they learn.
        policy, draws = load_policy(folder), hyper.draws_actions or isinstance(hyper, MADDPGSettings)
        assert_model_acts_as_policy(folder / f"{name}.onnx", policy, draws=draws)
