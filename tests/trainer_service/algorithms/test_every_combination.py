"""Every trainer type, with memory and without, with curiosity and without: it learns, goes on, is exported, and acts.

A new type, or one that learns to remember or to be curious, is covered by being registered.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from behavior_worlds import assert_resumes_exactly
from every_trainer import settings_of
from exported_models import assert_model_acts_as_policy
from short_episodes import DECISIONS, GROUP, SENSOR, ShortEpisodes

from trainer_service.algorithms import Compute
from trainer_service.behaviors.behavior import Behavior
from trainer_service.behaviors.saving import checkpoint_of
from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.interop.onnx_export import export_policy
from trainer_service.policy import Policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SMALL = {"hidden_units": 8, "num_layers": 1}
CURIOSITY = {"extrinsic": {}, "curiosity": {"strength": 0.1, "network_settings": SMALL}}
ACTIONS = (ActionSpec(0, (3,)), ActionSpec(2, ()))
"""The first of these that a type takes is what its agents do."""


@pytest.fixture(autouse=True)
def no_heavy_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses what would make torch import sympy: half a second in the middle of a run's first update."""
    for module in ("torch.fx.experimental.symbolic_shapes", "sympy"):
        monkeypatch.setitem(sys.modules, module, None)


def combinations() -> Iterator[Any]:
    for trainer_type, hyper in HYPERPARAMETERS.items():
        for memory in (None, "lstm") if hyper.supports_memory else (None,):
            for curious in (False, True) if hyper.supports_reward_models else (False,):
                words = (trainer_type, memory or "plain", "curiosity" if curious else "own")
                yield pytest.param(trainer_type, memory, curious, id="-".join(words))


def settings_for(trainer_type: str, memory: str | None, curious: bool) -> TrainerSettings:
    given = settings_of(trainer_type, max_steps=10_000)
    hyper = given["hyperparameters"]
    hyper |= {"batch_size": 12} if "batch_size" in hyper else {}
    # Four whole episodes: nothing is left over when a run is saved, or at the end.
    hyper |= {"buffer_size": 48} if hyper.get("buffer_size") == 128 else {}
    if HYPERPARAMETERS[trainer_type].learns_by_group:
        hyper["group_size"] = GROUP
    remembers = {"type": memory, "memory_size": 8, "sequence_length": 4}
    network = {**SMALL, "normalize": True, "memory": remembers if memory else None}
    signals = CURIOSITY if curious else {"extrinsic": {}}
    return TrainerSettings.model_validate({**given, "network_settings": network, "reward_signals": signals})


def make(settings: TrainerSettings, actions: ActionSpec, *, seed: int) -> Behavior:
    spec = BehaviorSpec((ObservationSpec("seen", (SENSOR,)),), actions)
    behavior = Behavior("Probe", spec, settings, Compute(torch.device("cpu"), seed))
    behavior.prepare()
    return behavior


def actions_of(settings: TrainerSettings) -> ActionSpec:
    for actions in ACTIONS:
        try:
            make(settings, actions, seed=1)
        except Exception as refusal:
            last = refusal
        else:
            return actions
    raise last


@pytest.mark.parametrize(("trainer_type", "memory", "curious"), list(combinations()))
def test_it_learns_goes_on_is_exported_and_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer_type: str, memory: str | None, curious: bool
) -> None:
    settings = settings_for(trainer_type, memory, curious)
    actions = actions_of(settings)
    world = ShortEpisodes(actions)
    straight = assert_resumes_exactly(
        partial(make, settings, actions), world, tmp_path, 12 * DECISIONS, more=4 * DECISIONS
    )
    assert (straight.updates > 0) == settings.hyperparameters.learns
    told = straight.summarize(0.0).series
    assert ("Policy/Curiosity Reward" in told) == ("Losses/Curiosity Forward Loss" in told) == curious

    policy = Policy(checkpoint_of(straight))
    assert bool(policy.memory_size) == bool(memory)
    if trainer_type != "random":  # its actions are drawn, whatever is asked for
        assert score(policy, ShortEpisodes(actions)) == score(policy, ShortEpisodes(actions)) != 0.0
        monkeypatch.undo()  # exporting imports all of it
        export_policy(policy.network(), policy.inputs, tmp_path / "Probe.onnx")
        assert_model_acts_as_policy(tmp_path / "Probe.onnx", policy)


def score(policy: Policy, world: ShortEpisodes) -> float:
    """What all agents earn in an episode with the policy's likeliest actions."""
    batch, memories, total = world.begin(), None, 0.0
    ids = {"agent_indices": batch.agent_ids % GROUP, "groups": batch.agent_ids // GROUP}
    told = ids if policy.num_agents else {}
    for _ in range(DECISIONS):
        seen = [sensor[batch.num_terminal :] for sensor in batch.observations]
        actions, memories = policy.predict(seen, memories, **told)
        batch = world.step(actions)
        total += float(batch.rewards.sum())
    return total
