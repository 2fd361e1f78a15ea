"""Episodes of an environment in lists, as a learner of teams replays them: what was seen, done, earned and ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from behavior_worlds import observe
from foreign_scenes import gymma_scene

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick

LIMIT, GAMMA = 7, 0.5


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("steps", "bootstraps"), [(None, False), (5, True)])
def test_replay_holds_what_the_environment_said(
    make_behavior: Callable[..., Behavior],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    n_step: int,
    steps: int | None,
    bootstraps: bool,
) -> None:
    """Agent i of three sees the time, earns its choice + i, and all end after 7 steps or are cut off after 5."""
    monkeypatch.syspath_prepend(str(repository / "tests" / "programs"))
    scene = gymma_scene("foragers:Foragers-v0", 2, {"limit": LIMIT}, steps=steps)
    (name,) = scene.behaviors
    behavior = make_behavior(
        sizes=(3,),
        branches=(3,),
        trainer_type="vdn",
        hyperparameters={"group_size": 3, "buffer_size": 4000, "buffer_init_steps": 4000, "n_step": n_step},
        reward_signals={"extrinsic": {"gamma": GAMMA, "strength": 1.0}},
        time_horizon=50,
        max_steps=10**6,
    )
    said = scene.reset(1)
    for _ in range(60):
        observe(behavior, BehaviorTick(simulator=0, team=0, batch=said[name]))
        (actions,) = behavior.collector.act()
        said = scene.step({name: actions})

    buffer = behavior.learner.replay.buffer
    sample = buffer._gather(np.arange(len(buffer)), None)
    length = steps or LIMIT
    earned = sample.discrete_actions[:, :, 0].sum(axis=1) + 3
    times = sample.observations[0][:, 0, 0].astype(int)
    assert len(buffer) > 40
    assert set(times) == set(range(length))
    for row, time in enumerate(times):
        ahead = min(n_step, length - time)
        over = time + ahead == length
        # The rows of an episode lie one below the other.
        returned = sum(GAMMA**step * earned[row + step] for step in range(ahead))
        assert sample.summed_rewards[row] == pytest.approx(returned)
        assert sample.discounts[row].tolist() == [GAMMA**ahead] * 3
        assert sample.next_present[row].all() == (bootstraps or not over)
        assert sample.terminated[row].all() == (over and not bootstraps)
        if sample.next_present[row].any():
            assert sample.next_observations[0][row, :, 0].tolist() == [time + ahead] * 3
