"""Every trainer type, with memory and without, with curiosity and without: it learns, goes on, is exported, and acts.

A new type, or one that learns to remember or to be curious, is covered by being registered.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from behavior_worlds import assert_resumes_exactly
from every_trainer import actions_of, combinations, make_behavior, settings_for
from exported_models import assert_model_acts_as_policy
from short_episodes import DECISIONS, GROUP, ShortEpisodes

from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.policy import Policy


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
