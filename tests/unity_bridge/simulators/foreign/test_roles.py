from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from unity_bridge.names import name_problem
from unity_bridge.simulators.foreign.environment import Description
from unity_bridge.simulators.foreign.roles import Role
from unity_bridge.simulators.foreign.roles import assign_roles as assign
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

SMALL, LARGE, TWO = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (3,)), spaces.Discrete(2)


def env_of(seen: Mapping[Any, Any], done: Any = TWO) -> Description:
    return Description({agent: (space, done) for agent, space in seen.items()}, {})


def assign_roles(env: Any, name: str, wanted: Sequence[tuple[str, str]] = ()) -> list[Role]:
    return assign(env, name, ForeignCode("pettingzoo:env"), wanted)


def names(env: Any, *wanted: tuple[str, str]) -> dict[str, tuple[Any, ...]]:
    return {role.behavior: role.agents for role in assign_roles(env, "Env", wanted)}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"a_0": SMALL, "a_1": LARGE, "a_2": SMALL}, {"Env_a_0": ("a_0", "a_2"), "Env_a_1": ("a_1",)}),
        ({"left": SMALL, "right": LARGE}, {"Env_left": ("left",), "Env_right": ("right",)}),
        ({0: SMALL, 1: LARGE, 2: LARGE}, {"Env_0": (0,), "Env_1": (1, 2)}),
        ({"red/x": SMALL, "blue y": LARGE}, {"Env_red_x": ("red/x",), "Env_blue_y": ("blue y",)}),
        (
            {"n": SMALL, "e": SMALL, "s": SMALL, "w": SMALL, "sun": LARGE},
            {"Env_n": ("n", "e", "s", "w"), "Env_sun": ("sun",)},
        ),
    ],
    ids=str,
)
def test_names_stay_different_and_fit_into_a_folder(seen: Any, expected: Any) -> None:
    assert names(env_of(seen)) == {f"{name}?team=0": agents for name, agents in expected.items()}


def test_first_fitting_pattern_names_behavior_and_team() -> None:
    env = env_of({"red_0": SMALL, "red_1": SMALL, "blue_0": SMALL, "blue_1": SMALL})
    assert names(env, ("red_0", "Boss"), ("red_*", "Duel?team=0"), ("*", "Duel?team=1")) == {
        "Boss?team=0": ("red_0",),
        "Duel?team=0": ("red_1",),
        "Duel?team=1": ("blue_0", "blue_1"),
    }


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ([("red_*", "Red")], r"--behaviors: agent 'blue_0' fits none of red_\*$"),
        (
            [("*", "All"), ("green_*", "Green")],
            r"--behaviors: 'green_\*' is left with none of the agents red_0, blue_0$",
        ),
        ([("*", "All"), ("red_0", "Red")], "--behaviors: 'red_0' is left with none of the agents"),
    ],
)
def test_a_map_that_does_not_fit_the_agents_is_refused(wanted: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint):
        assign_roles(env_of({"red_0": SMALL, "blue_0": SMALL}), "Env", wanted)


def test_agents_that_see_differently_cannot_share_a_behavior() -> None:
    complaint = r"agents 'a' and 'b' cannot share behavior 'Both': spaces .*\(2,\).*\(3,\)"
    with pytest.raises(SceneError, match=complaint):
        assign_roles(env_of({"a": SMALL, "b": LARGE}), "Env", [("*", "Both")])


@pytest.mark.parametrize(
    ("seen", "sensors"),
    [
        (SMALL, ["observation"]),
        (spaces.Dict({"observation": SMALL, "action_mask": spaces.MultiBinary(2)}), ["observation"]),
        (spaces.Dict({"zone": SMALL, "arm": LARGE}), ["observation.arm", "observation.zone"]),
        (
            spaces.Dict({"observation": SMALL, "action_mask": spaces.MultiBinary(2), "bag": LARGE}),
            ["observation.bag", "observation.observation"],
        ),
    ],
    ids=str,
)
def test_state_sorts_after_sensors_and_masks_are_no_sensors(seen: Any, sensors: list[str]) -> None:
    [role] = assign_roles(env_of({"a": seen}), "Env")
    assert [sensor.spec.name for sensor in role.interface.sensors] == sensors
    sample = seen.sample()
    for sensor in role.interface.sensors:
        key = sensor.spec.name.rpartition(".")[2]
        expected = sample[key] if isinstance(sample, dict) else sample
        np.testing.assert_array_equal(sensor.read_all([sample])[0], np.ravel(expected))


@pytest.mark.parametrize(
    ("seen", "done", "complaint"),
    [
        (spaces.Text(4), TWO, "agent 'a': observation 'observation' is a Text space"),
        (SMALL, spaces.Text(4), "agent 'a': action is a Text space; expected Box, Discrete"),
    ],
)
def test_unsupported_space_is_named_with_its_agent(seen: Any, done: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint):
        assign_roles(env_of({"a": seen}, done), "Env")


@pytest.mark.parametrize(
    "agents",
    [
        ("a b", "a_b", "a/b"),
        ("x" * 300, "x" * 299 + "y", "z"),
        ("..", ".", "-"),
        ("con", "CON.x", "nul"),
        (0, "0"),
    ],
    ids=str,
)
def test_names_that_are_made_here_are_valid_and_different(agents: tuple[Any, ...]) -> None:
    seen = {agent: spaces.Box(-1, 1, (i + 1,)) for i, agent in enumerate(agents)}
    behaviors = names(env_of(seen))
    assert list(behaviors.values()) == [(agent,) for agent in agents]
    for behavior in behaviors:
        assert name_problem(behavior.partition("?team=")[0], windows=True) is None


def test_a_behavior_that_the_user_names_must_be_valid() -> None:
    with pytest.raises(
        SceneError, match=r"--behaviors: the name 'Model.onnx' must not be the name of a file"
    ):
        assign_roles(env_of({"a": SMALL}), "Env", [("*", "Model.onnx")])
