"""The version of level-based foraging for which EPyMARL's scores are published, beside the version of the library."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from unity_bridge.simulators.foreign.lookup.ids import Maker


def excess(env: gymnasium.Env, episodes: int = 200) -> set[int]:
    """By how much the levels of food exceed the sum of the three lowest levels of agents."""
    field, found = env.unwrapped, set()
    for seed in range(episodes):
        field.reset(seed=seed)
        levels = sorted(int(player.level) for player in field.players)
        found |= {int(level) - sum(levels[:3]) for level in np.unique(field.field) if level}
    return found


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("scene", "newest", "published"),
    [
        ("Foraging-8x8-2p-3f", {0, -1, -2, -3}, {-1, -2, -3}),
        ("Foraging-10x10-3p-3f", set(range(-5, 1)), set(range(-5, 0))),
        ("Foraging-8x8-2p-2f-coop", {0}, {0}),
    ],
)
def test_version_2_has_food_of_smaller_levels(scene: str, newest: set[int], published: set[int]) -> None:
    """v2: randint(1, sum), whose upper bound is excluded; v3: integers(1, sum + 1)."""
    other = Maker(f"gymma:benchmarks.scores.foraging_v2:{scene}-v2", {})()
    assert excess(gymnasium.make(f"{scene}-v3", disable_env_checker=True)) == newest
    assert excess(other) == published
