"""The tags of rewards of every learner on policy: sums over whole episodes, however these were cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import begin_world, observe
from every_trainer import settings_of
from short_episodes import GROUP, SENSOR, ShortEpisodes

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.rewards.curiosity import CuriosityReward
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import concatenate
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

ON_POLICY = [name for name, hyper in HYPERPARAMETERS.items() if hyper.learns and not hyper.learns_from_replay]
ACTIONS = ActionSpec(0, (3,))
SMALL = {"hidden_units": 8, "num_layers": 1}
AGENTS, DECISIONS, UPDATE = 4, 30, 10
"""An update follows after a third of each episode."""
on_policy = pytest.mark.parametrize("trainer_type", ON_POLICY)


class LongEpisodes(ShortEpisodes):
    """Episodes of 30 decisions, each of which pays an agent 1."""

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        self._look()
        paid = np.ones(self.agents)
        if self.time % DECISIONS:
            return self.rows(paid)
        return concatenate(self.rows(paid, truncated=np.ones(self.agents, np.bool_)), self.begin())


def make(trainer_type: str, seed: int = 1, **scaled: bool) -> Behavior:
    """scaled: whether rewards are normalized."""
    given = settings_of(trainer_type, max_steps=100_000, time_horizon=5)
    given["hyperparameters"] |= {"batch_size": 20, "buffer_size": AGENTS * UPDATE}
    if HYPERPARAMETERS[trainer_type].learns_by_group:
        given["hyperparameters"]["group_size"] = GROUP
    given["network_settings"] = SMALL
    given["reward_signals"] = {
        "extrinsic": {"strength": 0.5, **scaled},
        "curiosity": {"strength": 0.1, "network_settings": SMALL, **scaled},
    }
    spec = BehaviorSpec((ObservationSpec("seen", (SENSOR,)),), ACTIONS)
    settings = TrainerSettings.model_validate(given)
    behavior = Behavior("Probe", spec, settings, Compute(torch.device("cpu"), seed))
    behavior.prepare()
    return behavior


def updates_of(behavior: Behavior, count: int) -> list[dict[str, float]]:
    """Metrics of so many updates in a world of long episodes."""
    world, batch = begin_world(behavior, LongEpisodes(ACTIONS, AGENTS))
    told: list[dict[str, float]] = []
    while len(told) < count:
        batch = world.step(behavior.collector.act()[0])
        observe(behavior, BehaviorTick(0, 0, batch))
        if behavior.ready_to_update():
            told.append(dict(behavior.update()))
    return told


@on_policy
def test_rewards_are_reported_over_whole_episodes(trainer_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paid: list[float] = []
    record = CuriosityReward.record

    def spy(self: CuriosityReward, experience: Any) -> np.ndarray:
        rewards = record(self, experience)
        paid.append(self.strength * float(rewards.sum()) / AGENTS)
        return rewards

    monkeypatch.setattr(CuriosityReward, "record", spy)
    told = updates_of(make(trainer_type), 6)
    # Two episodes of each agent; what their first two thirds paid is not reported before their end.
    assert [update.get("Policy/Extrinsic Reward") for update in told] == [None, None, 15.0, None, None, 15.0]
    curiosity = [update.get("Policy/Curiosity Reward") for update in told]
    assert [value is None for value in curiosity] == [True, True, False] * 2
    assert curiosity[2::3] == pytest.approx([sum(paid[:3]), sum(paid[3:])], rel=1e-5)
    assert curiosity[5] > 0.0
