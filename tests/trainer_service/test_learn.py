"""The loop, with a bridge that plays a script."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.algorithms import Compute
from trainer_service.behavior import Behavior
from trainer_service.behaviors import Behaviors
from trainer_service.channels import Channels
from trainer_service.config import parse_run_options
from trainer_service.console import Console
from trainer_service.curriculum import Curriculum
from trainer_service.errors import UserError
from trainer_service.learn import learn
from trainer_service.recorder import Recorder
from trainer_service.run import RunFolder
from trainer_service.status import TrainingStatus
from trainer_service.timers import Timers
from unity_bridge.channel_hub import ChannelHub
from unity_bridge.server import Departure, SimulatorInfo, Tick
from unity_bridge.side_channels import (
    SideChannelRecord,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

SPEC = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(1))
OTHER = BehaviorSpec((ObservationSpec("o", (3,)),), ActionSpec(1))


def tick(simulator: int, *agents: int, ended: int = 0, reward: float = 1.0, first: bool = False) -> Tick:
    n = len(agents)
    batch = StepBatch(
        agent_ids=np.array(agents, np.int64),
        observations=(np.zeros((n, 2), np.float32),),
        rewards=np.full(n, reward, np.float32),
        terminated=np.arange(n) < ended,
        truncated=np.zeros(n, np.bool_),
        allowed_actions=np.ones((n, 0), np.bool_),
        group_ids=np.zeros(n, np.int64),
        group_rewards=np.zeros(n, np.float32),
    )
    return Tick(simulator, {"B?team=0": SPEC} if first else {}, {"B?team=0": batch})


class ScriptedBridge:
    """Says what it is told to, one list of events per receive, and asks to stop at the end."""

    def __init__(self, *script: list[Tick | Departure]) -> None:
        self.script = list(script)
        self.replies: list[tuple[int, dict[str, ActionBatch]]] = []
        self.rejected: list[tuple[int, str]] = []
        self.requested = False
        self.sent: list[tuple[int | None, SideChannelRecord]] = []
        self.resets: list[int] = []
        self.simulators: dict[int, SimulatorInfo] = {}

    def receive(self, timeout_s: float) -> list[Tick | Departure]:
        events = self.script.pop(0)
        self.requested = not self.script
        for event in events:
            self.simulators[event.simulator] = SimulatorInfo("3.0.1", "1.5.0", frozenset())
        return events

    def reply(self, simulator: int, actions: dict[str, ActionBatch]) -> None:
        self.replies.append((simulator, actions))

    def reject(self, simulator: int, reason: str) -> None:
        self.rejected.append((simulator, reason))

    def send(self, records: Iterable[SideChannelRecord], simulator: int | None = None) -> None:
        self.sent += [(simulator, record) for record in records]

    def reset(self, simulator: int, records: Iterable[SideChannelRecord] = ()) -> None:
        self.send(records, simulator)
        self.resets.append(simulator)


def run(bridge: ScriptedBridge, tmp_path: Path, **parameters: Any) -> Behaviors:
    """Plays the script; ``parameters`` are those of the environment."""
    behaviors_section = {"B": {"max_steps": 50, "summary_freq": 1000}}
    options = parse_run_options(
        {"behaviors": behaviors_section, "environment_parameters": parameters}
    ).options
    curriculum = Curriculum(options.environment_parameters or {})
    channels = Channels(options, curriculum, ChannelHub())

    def create(name: str, spec: BehaviorSpec) -> Behavior:
        settings = options.behavior_settings(name)
        return Behavior(name, spec, settings, Compute(torch.device("cpu"), 1))

    behaviors = Behaviors(create)
    timers = Timers()
    folder = RunFolder.open(tmp_path, "run", inference=True)
    with Console(tty=False) as console:
        recorder = Recorder(folder, console, [], timers, TrainingStatus())
        learn(bridge, behaviors, curriculum, channels, recorder, console, timers, bridge)  # type: ignore[arg-type]
    return behaviors


def test_everyone_who_asks_gets_actions_in_one_pass(tmp_path: Path) -> None:
    bridge = ScriptedBridge([tick(0, 5, 6, first=True), tick(1, 5, first=True)], [])
    run(bridge, tmp_path)
    assert [(simulator, len(actions["B?team=0"])) for simulator, actions in bridge.replies] == [
        (0, 2),
        (1, 1),
    ]


def test_a_tick_without_anybody_waiting_is_answered_too(tmp_path: Path) -> None:
    bridge = ScriptedBridge([tick(0, 5, first=True)], [tick(0, 5, ended=1)], [Tick(0, {}, {})], [])
    behaviors = run(bridge, tmp_path)
    assert [sum(map(len, actions.values())) for _, actions in bridge.replies] == [1, 0, 0]
    assert behaviors["B"].step == 1


def test_a_simulator_that_leaves_right_after_its_tick_leaves_nothing_to_its_successor(tmp_path: Path) -> None:
    gone = Departure(0, "simulator 0: exited; starting it again")
    bridge = ScriptedBridge(
        [tick(0, 7, first=True)],
        [tick(0, 7), gone],  # in one breath
        [tick(0, 7, reward=99.0, first=True)],  # the successor's first message: nobody's reward
        [tick(0, 7, reward=3.0)],
        [],
    )
    behaviors = run(bridge, tmp_path)
    assert behaviors["B"].step == 1


def test_a_departure_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="trainer_service"):
        run(ScriptedBridge([tick(0, 1, first=True)], [Departure(0, "simulator 0: was killed")], []), tmp_path)
    assert "simulator 0: was killed" in caplog.text


def test_a_second_simulator_with_another_idea_of_the_behavior_is_refused_alone(tmp_path: Path) -> None:
    stranger = Tick(1, {"B?team=0": OTHER}, {})
    bridge = ScriptedBridge([tick(0, 1, first=True)], [stranger, tick(0, 1)], [])
    behaviors = run(bridge, tmp_path)
    assert [simulator for simulator, _ in bridge.rejected] == [1]
    assert "sensor 'o' had shape (2,), now (3,)" in bridge.rejected[0][1]
    assert behaviors["B"].step == 1


def test_a_first_behavior_without_settings_ends_the_run(tmp_path: Path) -> None:
    stranger = Tick(0, {"Unheard?team=0": SPEC}, {})
    with pytest.raises(UserError, match="'Unheard' has not been specified"):
        run(ScriptedBridge([stranger], []), tmp_path)


def test_the_step_budget_ends_the_loop_without_another_action(tmp_path: Path) -> None:
    agents = range(30)
    bridge = ScriptedBridge([tick(0, *agents, first=True)], [tick(0, *agents)], [tick(0, *agents)], [], [])
    behaviors = run(bridge, tmp_path)
    assert behaviors["B"].step == 60
    assert len(bridge.replies) == 2
