from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.agent_lists import as_gymnasium, spaces_of_agents
from unity_bridge.simulators.scene import SceneError

BOX = spaces.Box(-1, 1, (2,), np.float64)


def gyms(kind: str, **attributes: Any) -> Any:
    """A space of the older gym: only its name and what it consists of count."""
    return type(kind, (), attributes)()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (gyms("Box", low=BOX.low, high=BOX.high, shape=(2,), dtype=np.dtype(np.float64)), BOX),
        (gyms("Discrete", n=3), spaces.Discrete(3)),
        (gyms("Discrete", n=3, start=1), spaces.Discrete(3, start=1)),
        (gyms("MultiDiscrete", nvec=np.array([2, 3])), spaces.MultiDiscrete([2, 3])),
        (gyms("MultiBinary", n=4), spaces.MultiBinary(4)),
        (gyms("Tuple", spaces=[gyms("Discrete", n=2), BOX]), spaces.Tuple([spaces.Discrete(2), BOX])),
        (gyms("Dict", spaces={"a": gyms("Discrete", n=2)}), spaces.Dict({"a": spaces.Discrete(2)})),
    ],
)
def test_older_spaces_become_gymnasiums(theirs: Any, ours: Any) -> None:
    assert as_gymnasium(theirs) == ours


def test_stacked_spaces_are_split_by_agent() -> None:
    low = np.array([[0, 0], [-1, -2]], np.float32)
    sees, does = spaces_of_agents(spaces.Box(low, low + 3, (2, 2)), spaces.MultiDiscrete([4, 5]))
    assert [space.low.tolist() for space in sees] == low.tolist()
    assert does == [spaces.Discrete(4), spaces.Discrete(5)]


@pytest.mark.parametrize(
    ("observations", "actions", "complaint"),
    [
        (BOX, spaces.Discrete(2), "its action space is not one of several agents"),
        (BOX, [spaces.Discrete(2)] * 2, "its observation space is not one of several agents"),
        (spaces.Box(0, 1, (3, 2)), spaces.MultiDiscrete([4, 5]), "its observation space is not"),
        ([BOX] * 3, [spaces.Discrete(2)] * 2, "3 agents see and 2 act"),
        (
            [BOX, SimpleNamespace()],
            [BOX, BOX],
            "expected a space of gymnasium or gym for each agent, got name",
        ),
    ],
)
def test_spaces_of_single_agents_are_refused(observations: Any, actions: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint):
        spaces_of_agents(observations, actions)


def test_the_idle_choose_the_first_or_the_middle() -> None:
    assert actuator(spaces.Discrete(4, start=2)).idle() == 2
    assert actuator(spaces.Box(0, 4, (2,), np.float64)).idle().tolist() == [2, 2]
