"""How far apart the first continuous actions lie, as the simulator sees them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from behavior_worlds import observe

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import step_batch

PAIRS = 3000
KINDS = ("ppo", "mappo", "happo", "poca")


def spread(behavior: Behavior) -> np.ndarray:
    """Deviations of the actions that agents of pairs draw where all see the same. [2, actions]"""
    agents = np.arange(2 * PAIRS)
    seen = np.zeros((len(agents), 2), np.float32)
    rows = step_batch([seen], np.zeros(len(agents), np.float32), agent_ids=agents, group_ids=1 + agents // 2)
    observe(behavior, BehaviorTick(simulator=0, team=0, batch=rows))
    (actions,) = behavior.collector.act()
    return actions.continuous.reshape(PAIRS, 2, -1).std(axis=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("log_std", "std"), [(None, 1 / 3), (-2.0, 0.1353), (-1.0, 0.3679)])
def test_it_is_that_of_the_first_actions(
    make_behavior: Callable[..., Behavior], kind: str, log_std: float | None, std: float
) -> None:
    group = {} if kind == "ppo" else {"group_size": 2}
    behavior = make_behavior(
        sizes=(2,), continuous=3, trainer_type=kind, hyperparameters={"log_std_init": log_std, **group}
    )
    np.testing.assert_allclose(spread(behavior), std, rtol=0.06)


def test_the_widest_actions_lie_at_the_ends(make_behavior: Callable[..., Behavior]) -> None:
    behavior = make_behavior(sizes=(2,), continuous=1, hyperparameters={"log_std_init": 2.0})
    # σ is 7.4: 89 % of a Gaussian lies beyond −1 and 1, and is sent as these.
    np.testing.assert_allclose(spread(behavior), math.sqrt(0.89 + 0.11 / 3), rtol=0.02)
