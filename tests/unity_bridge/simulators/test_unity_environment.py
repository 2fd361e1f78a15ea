"""The published UnityEnvironment drives our simulator as if it were a Unity build."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from unity_bridge import mlagents_alias
from unity_bridge.simulators.academy import ECHO

# mlagents-envs compares versions with what the standard library has dropped.
pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:distutils Version classes are deprecated:DeprecationWarning"),
]

Open = Callable[..., Any]


@pytest.fixture
def open_environment() -> Iterator[Open]:
    """Starts the simulator and the environment that waits for it; both are gone afterwards."""
    mlagents_alias.install()
    from mlagents_envs.environment import UnityEnvironment

    environments: list[Any] = []
    processes: list[subprocess.Popen[str]] = []

    def open_(env: str, *arguments: str, side_channels: Sequence[Any] = ()) -> Any:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        line = [
            sys.executable,
            "-m",
            "unity_bridge.simulators",
            env,
            "--mlagents-port",
            str(port),
            *arguments,
        ]
        processes.append(subprocess.Popen(line, stderr=subprocess.PIPE, text=True))
        environments.append(
            UnityEnvironment(
                None, base_port=port, seed=11, timeout_wait=30, side_channels=list(side_channels)
            )
        )
        return environments[-1]

    try:
        yield open_
        for environment in environments:
            environment.close()
        for process in processes:
            said = ""
            for line in process.stderr or ():
                said += line
                if "is gone; waiting" in line:
                    # ML-Agents gives its goodbye one second, which a busy machine may need for less.
                    process.kill()
            assert process.wait() == 0 or "is gone; waiting" in said, said
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def zeros(spec: Any, count: int) -> Any:
    return spec.action_spec.empty_action(count)


def test_three_d_ball_for_a_hundred_steps(open_environment: Open) -> None:
    environment = open_environment("sim:3dball")
    environment.reset()
    ((name, spec),) = environment.behavior_specs.items()
    assert name == "3DBall?team=0"
    assert [(sensor.name, sensor.shape) for sensor in spec.observation_specs] == [
        ("VectorSensor_size8", (8,))
    ]
    assert (spec.action_spec.continuous_size, spec.action_spec.discrete_branches) == (2, ())
    ended: list[int] = []
    for _ in range(100):
        decisions, terminals = environment.get_steps(name)
        assert sorted(decisions.agent_id.tolist()) == list(range(12))
        assert set(terminals.agent_id.tolist()) <= set(range(12))
        assert np.all(terminals.reward == -1)
        assert not terminals.interrupted.any()
        stayed = np.isin(decisions.agent_id, terminals.agent_id, invert=True)
        assert np.all(np.isin(decisions.reward[stayed], np.float32([0, 0.1])))
        ended += terminals.agent_id.tolist()
        environment.set_actions(name, zeros(spec, len(decisions)))
        environment.step()
    assert len(ended) > 12


def test_the_environments_seed_is_the_scenes(open_environment: Open) -> None:
    def first_observations(*arguments: str) -> Any:
        environment = open_environment("sim:3dball", *arguments)
        environment.reset()
        return environment.get_steps("3DBall?team=0")[0].obs[0]

    np.testing.assert_array_equal(first_observations(), first_observations("--seed", "11"))


def test_basic_is_won_by_going_right(open_environment: Open) -> None:
    environment = open_environment("sim:basic")
    environment.reset()
    ((name, spec),) = environment.behavior_specs.items()
    assert spec.action_spec.discrete_branches == (3,)
    action = zeros(spec, 1)
    action.discrete[:] = 2
    rewards = []
    for _ in range(7):
        environment.set_actions(name, action)
        environment.step()
        decisions, terminals = environment.get_steps(name)
        rewards.append(float((terminals if len(terminals) else decisions).reward[0]))
    assert len(terminals) == 1
    assert sum(rewards) == pytest.approx(0.93)


def test_hybrid_asks_agents_in_turn_with_masks(open_environment: Open) -> None:
    environment = open_environment("sim:hybrid", "--agents", "3")
    environment.reset()
    ((name, spec),) = environment.behavior_specs.items()
    assert [sensor.name for sensor in spec.observation_specs] == ["order", "trolley"]
    asked = []
    for _ in range(4):
        decisions, _ = environment.get_steps(name)
        asked.append(decisions.agent_id.tolist())
        hook, shelves = decisions.action_mask
        assert hook.tolist() == [[False, True, True]] * len(decisions)
        assert shelves.sum(axis=1).tolist() == [1] * len(decisions)
        environment.set_actions(name, zeros(spec, len(decisions)))
        environment.step()
    assert asked == [[0, 1, 2], [0], [0, 1], [0, 2]]


def test_a_reset_in_the_middle_starts_anew(open_environment: Open) -> None:
    environment = open_environment("sim:basic")
    environment.reset()
    ((name, spec),) = environment.behavior_specs.items()
    action = zeros(spec, 1)
    action.discrete[:] = 1
    environment.set_actions(name, action)
    environment.step()
    environment.reset()
    decisions, terminals = environment.get_steps(name)
    assert len(terminals) == 0
    assert decisions.obs[0][0].argmax() == 10


def test_gridworld_shows_its_boards_and_the_goals(open_environment: Open) -> None:
    environment = open_environment("sim:gridworld", "--pictures", "float")
    environment.reset()
    ((name, spec),) = environment.behavior_specs.items()
    camera, goal = spec.observation_specs
    assert (camera.name, camera.shape) == ("CameraSensor", (3, 84, 84))
    assert (goal.name, goal.shape, goal.observation_type.name) == ("GoalSensor", (2,), "GOAL_SIGNAL")
    for _ in range(20):
        decisions, _ = environment.get_steps(name)
        assert decisions.obs[0].shape == (9, 3, 84, 84)
        assert decisions.obs[0].min() >= 0
        assert decisions.obs[0].max() <= 1
        # A mask of mlagents_envs is true for what is forbidden.
        (forbidden,) = decisions.action_mask
        action = zeros(spec, len(decisions))
        action.discrete[:, 0] = forbidden.argmin(axis=1)
        environment.set_actions(name, action)
        environment.step()


def test_environment_parameters_and_statistics_cross_the_wire(open_environment: Open) -> None:
    from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
    from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod, StatsSideChannel

    parameters, statistics = EnvironmentParametersChannel(), StatsSideChannel()
    environment = open_environment("sim:sorter", side_channels=[parameters, statistics])
    parameters.set_float_parameter("num_tiles", 7)
    environment.reset()
    ((name, _),) = environment.behavior_specs.items()

    def tiles() -> Any:
        return environment.get_steps(name)[0].obs[0].any(axis=2).sum(axis=1)

    assert tiles().tolist() == [7] * 16
    assert statistics.get_and_reset_stats() == {"Tiles/Number": [(7.0, StatsAggregationMethod.MOST_RECENT)]}
    parameters.set_uniform_sampler_parameters("num_tiles", 3.0, 6.0, seed=5)
    environment.reset()
    first = tiles().tolist()
    assert set(first) == {3, 4, 5}
    parameters.set_multirangeuniform_sampler_parameters("num_tiles", [(2.0, 3.0), (19.0, 20.0)], seed=5)
    environment.reset()
    assert set(tiles().tolist()) == {2, 19}
    parameters.set_gaussian_sampler_parameters("num_tiles", 10.5, 0.0, seed=5)
    environment.reset()
    assert tiles().tolist() == [10] * 16


def test_other_side_channels_are_read_and_answered(open_environment: Open) -> None:
    from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
    from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
    from mlagents_envs.side_channel.raw_bytes_channel import RawBytesChannel

    engine, properties, raw = EngineConfigurationChannel(), FloatPropertiesChannel(), RawBytesChannel(ECHO)
    environment = open_environment("sim:basic", side_channels=[engine, properties, raw])
    engine.set_configuration_parameters(width=64, height=64, time_scale=5.0)
    properties.set_property("gravity", 0.1)
    raw.send_raw_data(b"\x00hello")
    environment.reset()
    assert raw.get_and_clear_received_messages() == [b"\x00hello"]
    assert properties.get_property("gravity") == np.float32(0.1)  # confirmed: what was set was a float64
    environment.step()
    assert raw.get_and_clear_received_messages() == []


def test_walljump_moves_agents_between_its_behaviors(open_environment: Open) -> None:
    environment = open_environment("sim:walljump", "--parameter", "small_wall_height=0")
    environment.reset()
    specs = dict(environment.behavior_specs)
    assert set(specs) == {"SmallWallJump?team=0", "BigWallJump?team=0"}
    left: set[int] = set()
    for _ in range(12):
        for name, spec in specs.items():
            decisions, terminals = environment.get_steps(name)
            left |= set(terminals.agent_id.tolist())
            action = zeros(spec, len(decisions))
            action.discrete[:, 0] = 2
            environment.set_actions(name, action)
        environment.step()
    small, small_ended = environment.get_steps("SmallWallJump?team=0")
    big, big_ended = environment.get_steps("BigWallJump?team=0")
    assert not left
    assert len(small_ended) >= 2
    assert not len(big_ended)
    assert sorted([*small.agent_id, *big.agent_id]) == list(range(16))
    assert set(small_ended.agent_id) & set(big.agent_id)


@pytest.mark.parametrize(
    ("scene", "shapes"), [("hallway", [(30,)]), ("pyramids", [(40,), (44,)])], ids=["hallway", "pyramids"]
)
def test_hallway_and_pyramids_are_walked_over_the_wire(
    open_environment: Open, scene: str, shapes: list[tuple[int, ...]]
) -> None:
    from unity_bridge.simulators.registry import open_scene
    from unity_bridge.simulators.scene import Demonstrator

    environment = open_environment(f"sim:{scene}", "--seed", "3")
    environment.reset()
    ((name, spec),) = environment.behavior_specs.items()
    assert [sensor.shape for sensor in spec.observation_specs] == shapes
    assert spec.action_spec.discrete_branches == (5,)
    twin = open_scene(f"sim:{scene}")
    assert isinstance(twin, Demonstrator)
    steps = twin.reset(3)[name]
    for _ in range(60):
        decisions, terminals = environment.get_steps(name)
        assert decisions.agent_id.tolist() == list(range(16))
        assert terminals.reward.tolist() == steps.rewards[: steps.num_terminal].tolist()
        for seen, same in zip(decisions.obs, steps.observations, strict=True):
            np.testing.assert_array_equal(seen, same[steps.num_terminal :])
        shown = twin.expert()
        action = zeros(spec, len(decisions))
        action.discrete[:] = shown[name].discrete
        environment.set_actions(name, action)
        environment.step()
        steps = twin.step(shown)[name]
