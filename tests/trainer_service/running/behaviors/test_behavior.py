"""Behaviors: accepted specs, and when they are finished."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe

from trainer_service.config import parse_run_options
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.callbacks import EndedEpisodes
from trainer_service.running.collection.records import BehaviorTick, SampleBatch
from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

VECTOR = ObservationSpec("v", (2,))


def behavior(*sensors: ObservationSpec, learns: bool = True, **settings: object) -> Behavior:
    options = parse_run_options({"behaviors": {"B": settings}}).options
    spec = BehaviorSpec(sensors, ActionSpec(1))
    return Behavior("B", spec, options.behaviors["B"], Compute(torch.device("cpu"), 1), learns=learns)


def test_a_budget_of_episodes_ends_learning_before_the_steps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    ball = behavior(VECTOR, max_steps=100, max_episodes=3)
    said, learned = list[Any](), list[Any]()
    monkeypatch.setattr(ball.learner, "record", learned.append)
    for ended in (2, 0, 2, 2):
        returns = np.ones(ended)
        zeros = np.zeros(ended, np.int64)
        episodes = EndedEpisodes(returns, zeros + 5, zeros - 1, np.zeros(0), zeros > 0)
        steps: Any = len(said)
        ball.add(SampleBatch(team=0, transitions=10, trajectories=steps, episodes=episodes))
        said.append((ball.step, ball.episodes, ball.finished))
    assert said == [(10, 2, False), (20, 2, False), (30, 4, True), (40, 6, True)]
    assert learned == [0, 1, 2]  # also what uses up the budget
    assert ball.summarize(1.0).is_training
    assert not ball.summarize(1.0).is_training


def test_the_longest_episode_is_known_and_estimated_after_a_resume() -> None:
    ball = behavior(VECTOR)
    for lengths in ([3, 8], [5]):
        steps = np.array(lengths)
        episodes = EndedEpisodes(steps / 1.0, steps, 0 * steps - 1, np.zeros(0), steps < 0)
        ball.add(SampleBatch(team=0, transitions=int(steps.sum()), episodes=episodes))
    assert ball.longest_episode == 8
    resumed = behavior(VECTOR)
    restore(resumed, checkpoint_of(ball))
    assert resumed.longest_episode == 16 // 3


def test_returns_of_groups_and_of_agents_without_one_count() -> None:
    ball = behavior(VECTOR, trainer_type="poca")

    def tick(
        ids: list[int], groups: list[int], own: list[float], ended: int, group_reward: float = 0.0
    ) -> None:
        rows = np.arange(len(ids))
        batch = step_batch(
            [np.zeros((len(ids), 2), np.float32)],
            np.array(own, np.float32),
            agent_ids=np.array(ids),
            group_ids=np.array(groups),
            group_rewards=np.where(np.array(groups) > 0, group_reward, 0.0).astype(np.float32),
            allowed_actions=np.ones((len(ids), 0), np.bool_),
            terminated=rows < ended,
        )
        observe(ball, BehaviorTick(0, 0, batch))
        ball.collector.act()

    # Two of a group and one alone. One of the group dies before the other.
    tick([1, 2, 3], [5, 5, 0], [0.0, 0.0, 0.0], ended=0)
    tick([2, 1, 3], [5, 5, 0], [8.0, 1.0, 2.0], ended=1, group_reward=10.0)
    assert ball.returns.drain() == []
    tick([1, 3], [5, 0], [1.0, 4.0], ended=2, group_reward=10.0)
    assert ball.returns.drain() == [6.0, 30.0]
    assert ball.returns.drain_means() == {"B": 18.0}
    # Summaries have both.
    stats = ball.summarize(1.0).stats
    assert sorted(stats.returns) == [2.0, 6.0, 8.0]
    assert stats.group_returns.tolist() == [30.0]


def test_a_group_larger_than_configured_is_refused() -> None:
    pair = behavior(VECTOR, trainer_type="mappo", hyperparameters={"group_size": 2})
    three = step_batch(
        [np.zeros((3, 2), np.float32)],
        np.zeros(3, np.float32),
        agent_ids=np.arange(3),
        group_ids=np.ones(3, np.int64),
        allowed_actions=np.ones((3, 0), np.bool_),
    )
    refusal = (
        "behavior 'B': got a group of at least 3 agents, expected at most 2: set hyperparameters.group_size"
    )
    with pytest.raises(UserError, match=refusal):
        observe(pair, BehaviorTick(0, 0, three))


def test_pictures_too_small_for_their_encoder_are_refused_by_name() -> None:
    with pytest.raises(UserError, match="behavior 'B': sensor 'camera' shows pictures 16 wide and 30 high"):
        behavior(VECTOR, ObservationSpec("camera", (3, 30, 16)))


@pytest.mark.parametrize("trainer_type", sorted(set(ALGORITHMS) - {"ppo", "random"}))
def test_trainer_types_that_need_actions_refuse_behaviors_without(trainer_type: str) -> None:
    settings = parse_run_options({"behaviors": {"B": {"trainer_type": trainer_type}}}).options.behaviors["B"]
    watching = BehaviorSpec((VECTOR,), ActionSpec())
    with pytest.raises(UserError, match=f"behavior 'B': {trainer_type} needs actions to learn; .* none"):
        Behavior("B", watching, settings, Compute(torch.device("cpu"), 1))
