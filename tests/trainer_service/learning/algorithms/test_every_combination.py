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
from behavior_worlds import assert_resumes_exactly
from every_trainer import actions_of, combinations, make_behavior, settings_for
from exported_models import assert_model_acts_as_policy
from short_episodes import DECISIONS, GROUP, ShortEpisodes

from trainer_service.config import HYPERPARAMETERS
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec

PRIORITIZED = {"type": "prioritized", "beta_updates": 10}


@pytest.fixture(autouse=True)
def no_heavy_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses what would make torch import sympy: half a second in the middle of a run's first update."""
    for module in ("torch.fx.experimental.symbolic_shapes", "sympy"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(("trainer_type", "memory", "curious"), list(combinations()))
def test_it_learns_goes_on_is_exported_and_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer_type: str, memory: str | None, curious: bool
) -> None:
    settings = settings_for(trainer_type, memory, curious)
    actions = actions_of(settings)
    world = ShortEpisodes(actions)
    straight = assert_resumes_exactly(
        partial(make_behavior, settings, actions), world, tmp_path, 12 * DECISIONS, more=4 * DECISIONS
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


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ppo": [{"shared_critic": True}, {"learning_rate_schedule": "adaptive", "target_kl": 0.02}],
    "dqn": [
        {"replay": PRIORITIZED, "n_step": 2, "dueling": True},
        {"target_update": 3, "double": False, "exploration_unit": "episodes", "exploration_steps": 90},
    ],
    "sac": [{"replay": PRIORITIZED, "policy_delay": 3}, {"critic_norm": "batch"}, {"init_entcoef": 0}],
    "ddpg": [{"replay": PRIORITIZED, "noise": "gaussian", "noise_final": 0.01, "exploration_steps": 150}],
    "td3": [{"replay": PRIORITIZED, "policy_delay": 3, "n_step": 2}],
    "maddpg": [
        {"share": "full", "agent_ids": True, "hard_gumbel": True, "reward_mode": "team_sum"},
        {"replay": PRIORITIZED, "noise": "ou", "target_update": 3, "n_step": 2},
    ],
    "qmix": [{"replay": {"type": "uniform"}, "state": "joint"}],
    "dqn_consensus": [{"consensus_every": 1, "replay": PRIORITIZED, "n_step": 2}],
    "sic": [{"replay": PRIORITIZED}],
    "mappo": [{"share": "none"}, {"learning_rate_schedule": "adaptive", "target_kl": 0.02}],
    "happo": [{"share": "none"}],
    "coma": [{"share": "none", "target_update": 3}],
}
"""Hyperparameters of a trainer type beside those that every combination has, each with more state to save."""


def variants() -> Iterator[Any]:
    for trainer_type, each in VARIANTS.items():
        for number, changes in enumerate(each):
            remembers = HYPERPARAMETERS[trainer_type].supports_memory and "critic_norm" not in changes
            kinds = (None, "gru") if remembers else (None,)
            for memory in kinds:
                name = f"{trainer_type}-{number}-{memory or 'plain'}"
                yield pytest.param(trainer_type, memory, changes, id=name)


@pytest.mark.parametrize(("trainer_type", "memory", "changes"), list(variants()))
def test_a_variant_goes_on_bit_for_bit(
    tmp_path: Path, trainer_type: str, memory: str | None, changes: dict[str, Any]
) -> None:
    settings = settings_for(trainer_type, memory, False, **changes)
    actions = actions_of(settings)
    straight = assert_resumes_exactly(
        partial(make_behavior, settings, actions), ShortEpisodes(actions), tmp_path, 9 * DECISIONS, more=9
    )
    assert straight.updates > 0


@pytest.mark.parametrize("memory", [None, "gru", "lstm"])
@pytest.mark.parametrize("share", ["none", "full"])
def test_noise_that_drifts_goes_on_beside_a_memory(tmp_path: Path, memory: str | None, share: str) -> None:
    settings = settings_for("maddpg", memory, False, noise="ou", share=share)
    actions = ActionSpec(continuous_size=2)
    make = partial(make_behavior, settings, actions)
    straight = assert_resumes_exactly(make, ShortEpisodes(actions), tmp_path, 9 * DECISIONS, more=9)
    assert straight.updates > 0


@pytest.mark.parametrize("ticks", [1, 30], ids=["before-learning", "overwriting"])
@pytest.mark.parametrize("trainer_type", ["dqn", "maddpg"])
def test_a_buffer_is_resumed_empty_and_overwritten(tmp_path: Path, trainer_type: str, ticks: int) -> None:
    settings = settings_for(trainer_type, None, False, buffer_size=60)
    actions = actions_of(settings)
    make = partial(make_behavior, settings, actions)
    straight = assert_resumes_exactly(make, ShortEpisodes(actions), tmp_path, ticks * DECISIONS, more=24)
    assert checkpoint_of(straight).algorithm["updates"] > 0


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
