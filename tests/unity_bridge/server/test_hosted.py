"""Simulators in this process: the same conversation, what their faults do, and when they get processes instead."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from unity_bridge.errors import LaunchError, SimulatorLost
from unity_bridge.programs.executables import Command, bundled_command, resolve_program
from unity_bridge.programs.hosted_simulator import is_isolated
from unity_bridge.programs.program_environment import program_environment
from unity_bridge.simulators.scene import SceneError, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

TICKS = 25


class Faulty(gymnasium.Env[Any, Any]):
    """An environment with a fault at its third step."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)
    log: list[str]

    def __init__(self, fault: Callable[[], None] = lambda: None, log: list[str] | None = None) -> None:
        self.fault, self.time = fault, 0
        self.log = [] if log is None else log

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.log.append(f"step {self.time}")
        if self.time == 3:
            self.fault()
        return np.zeros(1, np.float32), 1.0, False, False, {}

    def close(self) -> None:
        self.log.append("closed")


def command_for(make: Any) -> Command:
    own = program_environment(make)
    return bundled_command(own.env, (), own)


def answer(bridge: Any, tick: Any, choice: int = 0) -> None:
    """Answers a tick of environments with one choice of actions."""
    waiting = {name: len(batch) - batch.num_terminal for name, batch in tick.steps.items()}
    bridge.reply(
        tick.simulator,
        {
            name: ActionBatch(np.zeros((rows, 0), np.float32), np.full((rows, 1), choice, np.int32))
            for name, rows in waiting.items()
        },
    )


def play(bridge: Any, ticks: int) -> list[Any]:
    """The batches of some ticks, with actions that differ from tick to tick."""
    seen = []
    for number in range(ticks):
        tick = bridge.next_tick()
        seen.append(tick.steps)
        answer(bridge, tick, number % 2)
    return seen


def test_the_conversation_is_that_of_a_process(make_bridge: Any) -> None:
    command = resolve_program("sim:basic", ["--agents", "2"])
    played = []
    for isolate in (True, False):
        bridge = make_bridge(isolate=isolate)
        assert bridge.launch(command) == [0]
        played.append(play(bridge, TICKS))
        assert bridge.simulators[0].launched
        bridge.close()
    for there, here in zip(*played, strict=True):
        assert there.keys() == here.keys()
        for name, batch in there.items():
            for field in ("agent_ids", "rewards", "terminated", "truncated"):
                np.testing.assert_array_equal(getattr(batch, field), getattr(here[name], field))
            for ours, theirs in zip(batch.observations, here[name].observations, strict=True):
                np.testing.assert_array_equal(ours, theirs)


class Scribbler:
    """A scene that writes into the actions that it gets."""

    behaviors: ClassVar = {"A": BehaviorSpec((vector_sensor("place", 1),), ActionSpec(1))}

    def reset(self, seed: int | None = None) -> Any:
        rows = step_batch([np.zeros((1, 1), np.float32)], np.zeros(1, np.float32), agent_ids=np.arange(1))
        return {"A": rows}

    def step(self, actions: Any) -> Any:
        actions["A"].continuous[:] = 9.0
        return self.reset()


def test_actions_that_a_scene_overwrites_are_its_own(make_bridge: Any) -> None:
    bridge = make_bridge(isolate=False)
    bridge.launch(command_for(Scribbler))
    given = ActionBatch(np.zeros((1, 1), np.float32), np.zeros((1, 0), np.int32))
    for _ in range(3):  # the first message is one of bytes
        bridge.reply(bridge.next_tick().simulator, {"A": given})
    bridge.next_tick()
    assert given.continuous.tolist() == [[0.0]]


def test_an_error_keeps_its_frames_and_names_the_line(make_bridge: Any) -> None:
    def fault() -> None:
        raise ValueError("the ball is lost")

    bridge = make_bridge(isolate="auto")
    log: list[str] = []
    bridge.launch(command_for(lambda: Faulty(fault, log)))
    play(bridge, 3)
    with pytest.raises(SimulatorLost) as failure:
        bridge.receive(10.0)
    text = str(failure.value)
    assert text.startswith(
        "simulator 0 (python:lambda, in this process): python:lambda: step() raised ValueError"
    )
    assert 'raise ValueError("the ball is lost")' in text
    cause = failure.value.__cause__
    assert isinstance(cause, SceneError)
    assert isinstance(cause.__cause__, ValueError)
    names = []
    trace = cause.__cause__.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-2:] == ["step", "fault"]
    assert log[-1] == "closed"


def test_an_environment_that_cannot_be_made_fails_at_the_start(make_bridge: Any) -> None:
    def make() -> Faulty:
        raise RuntimeError("no licence")

    bridge = make_bridge(isolate="auto")
    bridge.launch(command_for(make))
    with pytest.raises(LaunchError, match="python:make: making it raised RuntimeError: no licence"):
        bridge.receive(10.0)


def test_an_exit_is_the_simulators_alone(make_bridge: Any) -> None:
    bridge = make_bridge(isolate="auto")
    bridge.launch(command_for(lambda: Faulty(lambda: sys.exit(3))))
    play(bridge, 3)
    with pytest.raises(SimulatorLost, match="in this process\\): it raised SystemExit\\(3\\)"):
        bridge.receive(10.0)


def test_a_step_that_takes_long_is_shown_and_waited_for(
    make_bridge: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def slow() -> None:
        deadline = time.monotonic() + 30.0
        while "has not returned" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)

    bridge = make_bridge(isolate="auto", timeout_wait_s=0.2)
    bridge.launch(command_for(lambda: Faulty(slow)))
    assert len(play(bridge, 5)) == 5
    assert "simulator 0 (python:lambda, in this process) has not returned for" in caplog.text
    assert "in slow" in caplog.text


def test_a_person_at_a_breakpoint_is_left_alone(
    make_bridge: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import pdb

    def stop() -> None:
        pdb.Pdb(stdin=io.StringIO("import time; time.sleep(1)\nc\n"), stdout=io.StringIO()).set_trace()

    tracer = sys.gettrace()
    bridge = make_bridge(isolate="auto", timeout_wait_s=0.2)
    bridge.launch(command_for(lambda: Faulty(stop)))
    try:
        assert len(play(bridge, 5)) == 5
    finally:
        sys.settrace(tracer)
    assert "has not returned" not in caplog.text


def test_closing_closes_the_environment_and_tells_what_that_raises(
    make_bridge: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(Faulty):
        def close(self) -> None:
            raise RuntimeError("the window is gone")

    log: list[str] = []
    for make in (lambda: Faulty(log=log), Stuck):
        bridge = make_bridge(isolate="auto")
        bridge.launch(command_for(make))
        play(bridge, 2)
        bridge.close()
    assert log == ["step 1", "closed"]


@pytest.mark.parametrize(
    ("env", "arguments", "count", "isolated"),
    [
        ("sim:3dball", (), 1, False),
        ("gym:CartPole-v1", ("--agents", "8"), 1, False),
        ("pettingzoo:mpe2.simple_v3", (), 1, False),
        ("gym:CartPole-v1", (), 2, True),
        ("gym:CartPole-v1", ("--vector", "async"), 1, True),
        ("gym:CartPole-v1", ("--env-kwargs", '{"render_mode": "human"}'), 1, True),
        ("gymma:foraging", (), 1, True),
        ("sim:basic", ("--record", "film.gif"), 1, True),
    ],
)
def test_simulators_get_processes_where_something_speaks_for_it(
    env: str, arguments: tuple[str, ...], count: int, isolated: bool
) -> None:
    command = resolve_program(env, arguments)
    assert is_isolated(command, count, "auto") is isolated
    assert is_isolated(command, count, True)
    if "async" not in arguments:
        assert not is_isolated(command, count, False)


def test_what_cannot_run_in_this_process_is_refused() -> None:
    program = Command(env="game.x86_64", executable=("game.x86_64",))
    assert is_isolated(program, 1, "auto")
    with pytest.raises(LaunchError, match=r"env 'game.x86_64': isolate is false, but it is a program"):
        is_isolated(program, 1, False)
    with pytest.raises(LaunchError, match="--vector async copies the process"):
        is_isolated(resolve_program("gym:CartPole-v1", ["--vector", "async"]), 1, False)
