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
