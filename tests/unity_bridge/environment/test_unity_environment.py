"""Programs for the low-level Python API of ML-Agents, on our class and on the published one beside it."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import (
    UnityActionException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from processes import free_port

from unity_bridge.environment import UnityEnvironment
from unity_bridge.environment.channels import SideChannel

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="the simulators are scripts"),
]

PROGRAMS = Path(__file__).parents[2] / "programs"
LOW_LEVEL = runpy.run_path(str(PROGRAMS / "low_level.py"))
MIRROR = "Mirror?team=0"
COMMAND, RESETS, STEP, SEED = range(4)
STEP_COMMAND, RESET_COMMAND = 0, 1


@pytest.fixture
def simulator(tmp_path: Path) -> Callable[..., str]:
    """An executable that is called like a Unity build and runs this command line before its own arguments."""

    def make(*words: object) -> str:
        path = tmp_path / f"simulator-{len(list(tmp_path.iterdir()))}.x86_64"
        line = shlex.join([sys.executable, *map(str, words)])
        path.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def open_env() -> Iterator[Callable[..., UnityEnvironment]]:
    """Environments that do not outlive the test."""
    opened: list[UnityEnvironment] = []

    def make(*arguments: Any, **keywords: Any) -> UnityEnvironment:
        opened.append(UnityEnvironment(*arguments, **keywords))
        return opened[-1]

    yield make
    for env in opened:
        with contextlib.suppress(UnityEnvironmentException):  # the test closed it
            env.close()


@pytest.fixture
def mirror(simulator: Callable[..., str], open_env: Callable[..., UnityEnvironment]) -> Any:
    """An environment with agents that observe their last actions; see tests/programs/mirror.py."""
    return lambda **keywords: open_env(simulator(PROGRAMS / "mirror.py"), **keywords)


def commands(env: UnityEnvironment) -> list[float]:
    """[command, resets, step, seed] as the simulator received them last."""
    values: list[float] = env.get_steps(MIRROR)[0].obs[0][0].tolist()
    return values


def deeds(env: UnityEnvironment) -> list[list[float]]:
    """The last action of each agent: two continuous numbers, two choices."""
    values: list[list[float]] = env.get_steps(MIRROR)[0].obs[1].tolist()
    return values


def actions(continuous: Any, discrete: Any) -> ActionTuple:
    return ActionTuple(np.array(continuous, np.float32), np.array(discrete, np.int32))


def published_record(plan: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """The record of the published class, on our messages, with an equal simulator; in a process of its own."""
    plan["environment"]["base_port"] = free_port()
    (folder / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, str(PROGRAMS / "low_level.py"), "aliased", "plan.json", "out.npz"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    with np.load(folder / "out.npz") as record:
        return dict(record)


@pytest.mark.parametrize(
    ("words", "seed", "reset_at"),
    [
        (("-m", "unity_bridge.simulators", "sim:sorter"), 11, 1),
        ((PROGRAMS / "crowd.py",), 7, None),  # begins anew with other random numbers each time
    ],
    ids=["entities and masks", "two behaviors, three teams"],
)
def test_program_gets_equal_steps_from_ours_and_the_published_class(
    words: tuple[object, ...], seed: int, reset_at: int | None, simulator: Callable[..., str], tmp_path: Path
) -> None:
    setting = {"file_name": simulator(*words), "seed": seed, "timeout_wait": 60}
    plan = {"steps": 60, "reset_at": reset_at, "actions_seed": seed + 1, "environment": setting}
    ours = LOW_LEVEL["play"](UnityEnvironment, plan)
    published = published_record(plan, tmp_path)
    assert ours.keys() == published.keys()
    assert any("/terminal/reward" in path and len(values) for path, values in ours.items())
    for path, values in published.items():
        np.testing.assert_array_equal(ours[path], values, err_msg=path)


def test_the_published_channels_hear_the_same_from_both(
    simulator: Callable[..., str], tmp_path: Path
) -> None:
    setting = {"file_name": simulator(PROGRAMS / "mirror.py"), "seed": 1, "timeout_wait": 60}
    plan = {"steps": 5, "reset_at": 3, "actions_seed": 2, "environment": setting}
    ours = LOW_LEVEL["play"](UnityEnvironment, plan)
    published = published_record(plan, tmp_path)
    assert ours.keys() == published.keys()
    for path, values in published.items():
        np.testing.assert_array_equal(ours[path], values, err_msg=path)
    assert ours["raw"].tobytes() == bytes(range(256)) + b"reset"
    assert ours["properties/gravity"] == np.float32(-9.81)
    assert ours["stats/steps"].tolist() == [[0, 0], [1, 0], [2, 0], [3, 0], [4, 0]]


def test_a_bundled_environment_is_opened_by_its_name(open_env: Any) -> None:
    env = open_env("sim:basic", seed=2, additional_args=["--agents", "3"])
    assert dict(env.behavior_specs) == {}
    env.step()
    (name,) = env.behavior_specs
    decisions, terminals = env.get_steps(name)
    assert (len(decisions), len(terminals)) == (3, 0)
    assert decisions.obs[0].dtype == np.float32
    assert decisions.action_mask is not None
    assert [mask.shape for mask in decisions.action_mask] == [(3, 3)]


def test_actions_reach_the_agents_and_hold_for_one_step_only(mirror: Any) -> None:
    env = mirror()
    env.reset()
    env.set_actions(MIRROR, actions([[0.25, -1], [0.5, 1]], [[2, 0], [1, 2]]))
    env.step()
    assert deeds(env) == [[0.25, -1, 2, 0], [0.5, 1, 1, 2]]
    env.step()
    assert deeds(env) == [[0, 0, 0, 0], [0, 0, 0, 0]]


def test_one_agents_action_leaves_the_others_as_they_were_set(mirror: Any) -> None:
    env = mirror()
    env.reset()
    everybody = actions([[0.25, -1], [0.5, 1]], [[2, 0], [1, 2]])
    env.set_actions(MIRROR, everybody)
    env.set_action_for_agent(MIRROR, 9, actions([[0.125, 0]], [[0, 1]]))
    env.step()
    assert deeds(env) == [[0.25, -1, 2, 0], [0.125, 0, 0, 1]]
    assert everybody.continuous.tolist() == [[0.25, -1], [0.5, 1]]
    env.set_action_for_agent(MIRROR, 7, actions([[1, 1]], [[1, 1]]))
    env.step()
    assert deeds(env) == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_mistakes_with_actions_are_named(mirror: Any) -> None:
    env = mirror()
    with pytest.raises(UnityActionException, match=r"no behavior 'Mirror\?team=0'; known: none before"):
        env.get_steps(MIRROR)
    env.reset()
    good = actions([[0, 0], [0, 0]], [[0, 0], [0, 0]])
    with pytest.raises(UnityActionException, match=r"no behavior 'Mirror'; known: Mirror\?team=0"):
        env.set_actions("Mirror", good)
    with pytest.raises(UnityActionException, match=r"expected continuous .* \(2, 2\).*, got \(1, 2\)"):
        env.set_actions(MIRROR, actions([[0, 0]], [[0, 0]]))
    with pytest.raises(UnityActionException, match=r"expected discrete .* \(2, 2\).*, got \(2, 1\)"):
        env.set_actions(MIRROR, actions([[0, 0], [0, 0]], [[0], [0]]))
    with pytest.raises(UnityActionException, match=r"expected continuous .*, got none"):
        env.set_actions(MIRROR, ActionTuple())
    with pytest.raises(UnityActionException, match=r"expected continuous .* \(1, 2\).*, got \(2, 2\)"):
        env.set_action_for_agent(MIRROR, 7, good)
    with pytest.raises(IndexError, match=r"agent 8 of 'Mirror\?team=0' does not wait"):
        env.set_action_for_agent(MIRROR, 8, actions([[0, 0]], [[0, 0]]))


class Notes(SideChannel):  # type: ignore[misc]
    """Keeps what it hears."""

    def __init__(self, number: int) -> None:
        super().__init__(UUID(int=number))
        self.received: list[str] = []

    def say(self, text: str) -> None:
        self.message_queue.append(bytearray(text.encode()))

    def on_message_received(self, msg: Any) -> None:
        text = bytes(msg.get_raw_bytes()).decode()
        if text == "trouble":
            raise RuntimeError("a handler in trouble")
        self.received.append(text)


def test_channels_carry_messages_both_ways_in_order_and_once(mirror: Any) -> None:
    one, other = Notes(1), Notes(2)
    env = mirror(side_channels=[one, other])
    other.say("before the first reset")
    one.say("first"), one.say("second")
    env.reset()
    assert (one.received, other.received) == (["first", "second"], ["before the first reset"])
    one.say("with a step")
    env.step()
    other.say("with a reset")
    env.reset()
    env.step()
    assert one.received == ["first", "second", "with a step"]
    assert other.received == ["before the first reset", "with a reset"]


def test_a_simulator_attaches_where_no_program_is_named(simulator: Any, open_env: Any) -> None:
    port = free_port()
    attached = subprocess.Popen(
        [simulator(PROGRAMS / "mirror.py"), "--mlagents-port", str(port)], stdout=subprocess.DEVNULL
    )
    env = open_env(base_port=port, seed=6)
    env.reset()
    assert commands(env) == [RESET_COMMAND, 1, 0, 6]
    env.close()
    assert attached.wait(60) == 0


def test_no_simulator_in_time_is_a_timeout(open_env: Any) -> None:
    port = free_port()
    with pytest.raises(
        UnityTimeOutException, match=rf"no simulator attached to 127.0.0.1:{port} within 0.2 s"
    ):
        open_env(base_port=port, timeout_wait=0.2)
    socket.create_server(("127.0.0.1", port)).close()  # the port is free again


def test_a_program_that_falls_silent_is_a_timeout(simulator_program: Any, open_env: Any) -> None:
    plan = simulator_program("introduce confirm first wait")
    env = open_env(plan.executable[0], additional_args=list(plan.arguments), timeout_wait=1)
    env.reset()
    with pytest.raises(UnityTimeOutException, match="silent for 1 s; it owes its next step"):
        env.step()
    with pytest.raises(UnityCommunicatorStoppedException, match="is over"):
        env.step()


def test_exit_code_of_a_program_is_reported(simulator_program: Any, open_env: Any) -> None:
    plan = simulator_program("introduce confirm first print exit")
    env = open_env(plan.executable[0], additional_args=list(plan.arguments))
    env.reset()
    with pytest.raises(UnityEnvironmentException, match=r"(?s)exited with code 3.*the ball is lost"):
        env.step()


def test_a_taken_port_is_a_worker_in_use(open_env: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UnityWorkerInUseException, match="worker number 2 is still in use"):
            open_env("sim:basic", base_port=port - 2, worker_id=2)
        with pytest.raises(UnityWorkerInUseException):
            open_env(base_port=port)


def test_no_such_program_and_no_such_worker_are_refused(open_env: Any) -> None:
    with pytest.raises(UnityEnvironmentException, match="no such program"):
        open_env("builds/nowhere")
    with pytest.raises(UnityEnvironmentException, match="worker_id: expected 0 without a program, got 1"):
        open_env(worker_id=1)


def test_a_program_that_forgets_to_close_leaves_nothing_running(simulator: Any, tmp_path: Path) -> None:
    mirror = simulator(
        "-c", f"import os; print(os.getpid(), flush=True); exec(open({str(PROGRAMS / 'mirror.py')!r}).read())"
    )
    source = f"""
from unity_bridge.environment import UnityEnvironment
env = UnityEnvironment({mirror!r}, log_folder={str(tmp_path)!r})
env.reset()
"""
    subprocess.run([sys.executable, "-c", source], timeout=60, check=True)
    pid = int((tmp_path / "Player-0.out").read_text().split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
