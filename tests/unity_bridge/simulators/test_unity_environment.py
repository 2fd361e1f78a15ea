"""The published UnityEnvironment drives our simulator as if it were a Unity build."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from unity_bridge import mlagents_alias

# mlagents-envs compares versions with what the standard library has dropped.
pytestmark = pytest.mark.filterwarnings("ignore:distutils Version classes are deprecated:DeprecationWarning")

Open = Callable[..., Any]


@pytest.fixture
def open_environment() -> Iterator[Open]:
    """Starts the simulator and the environment that waits for it; both are gone afterwards."""
    mlagents_alias.install()
    from mlagents_envs.environment import UnityEnvironment

    environments: list[Any] = []
    processes: list[subprocess.Popen[str]] = []

    def open_(env: str, *arguments: str) -> Any:
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
        environments.append(UnityEnvironment(None, base_port=port, seed=11, timeout_wait=30))
        return environments[-1]

    try:
        yield open_
        for environment in environments:
            environment.close()
        for process in processes:
            _, err = process.communicate(timeout=20)
            assert process.returncode == 0, err
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
