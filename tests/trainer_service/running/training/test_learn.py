"""The loop, with a bridge that plays a script."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import torch

from trainer_service.config import parse_run_options
from trainer_service.errors import OutOfMemory, UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.rollout.assembler import TrajectoryAssembler
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.registry import Behaviors
from trainer_service.running.callbacks import CallbackError
from trainer_service.running.collection import collector
from trainer_service.running.collection.channels import Channels
from trainer_service.running.collection.router import Router
from trainer_service.running.collection.simulators import Simulators
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.statistics import MAX_NAMES
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.learn import learn
from trainer_service.running.training.local_simulators import LocalLearners
from trainer_service.running.training.progress_log import ProgressLog
from trainer_service.running.training.recorder import Outputs, Recorder
from trainer_service.running.training.run import Run
from unity_bridge.server.bridge import Departure, SimulatorInfo, Tick
from unity_bridge.side_channels import (
    STATS,
    Aggregation,
    FloatParameter,
    SideChannelRecord,
    StatMessage,
    parameter_records,
    stat_records,
)
from unity_bridge.side_channels.channel_hub import ChannelHub
from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

SPEC = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(1))
OTHER = BehaviorSpec((ObservationSpec("o", (3,)),), ActionSpec(1))


def tick(simulator: int, *agents: int, ended: int = 0, reward: float = 1.0, first: bool = False) -> Tick:
    n = len(agents)
    batch = step_batch(
        [np.zeros((n, 2), np.float32)],
        np.full(n, reward, np.float32),
        agent_ids=np.array(agents, np.int64),
        terminated=np.arange(n) < ended,
    )
    return Tick(simulator, {"B?team=0": SPEC} if first else {}, {"B?team=0": batch})


class ScriptedBridge:
    """Says what it is told to, one list of events per receive, and asks to stop at the end."""

    def __init__(self, *script: list[Tick | Departure], launched: bool = False) -> None:
        self.launched = launched
        self.script = list(script)
        self.replies: list[tuple[int, dict[str, ActionBatch]]] = []
        self.rejected: list[tuple[int, str]] = []
        self.requested = False
        self.sent: list[tuple[int | None, SideChannelRecord]] = []
        self.resets: list[int] = []
        self.simulators: dict[int, SimulatorInfo] = {}
        self.greeting: Callable[[int, SimulatorInfo], object] = lambda simulator, info: None

    def take_save_request(self) -> bool:
        return False

    def receive(self, timeout_s: float) -> list[Tick | Departure]:
        events = self.script.pop(0)
        self.requested = not self.script
        for event in events:
            self.simulators[event.simulator] = SimulatorInfo("3.0.1", "1.5.0", frozenset(), self.launched)
            if isinstance(event, Tick) and event.new_specs:
                self.greeting(event.simulator, self.simulators[event.simulator])
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


def run(
    bridge: ScriptedBridge,
    tmp_path: Path,
    *,
    hub: ChannelHub | None = None,
    behaviors: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Behaviors:
    """Plays the script; ``parameters`` are those of the environment."""
    section = behaviors or {"B": {"max_steps": 50, "summary_freq": 1000}}
    options = parse_run_options({"behaviors": section, "environment_parameters": parameters}).options
    course = Curriculum(options.environment_parameters or {})
    channels = Channels(options, course.messages, hub or ChannelHub())
    bridge.greeting = channels.greeting

    def create(name: str, spec: BehaviorSpec, group: int) -> Behavior:
        settings = options.behavior_settings(name)
        return Behavior(name, spec, settings, Compute(torch.device("cpu"), 1))

    made = Behaviors(create)
    timers = Timers()
    folder = RunFolder.open(tmp_path, "run", inference=True)
    with Console(tty=False) as console:
        recorder = Recorder(Outputs(folder, console, [], timers), TrainingStatus())
        learners = LocalLearners(made, recorder, channels, bridge)  # type: ignore[arg-type]
        learn(
            Run(
                source=Simulators(bridge, Router(made.env_steps), channels, learners, timers),  # type: ignore[arg-type]
                behaviors=made,
                curriculum=course,
                recorder=recorder,
                progress=ProgressLog(console),
                timers=timers,
                stop=bridge,  # type: ignore[arg-type]
            )
        )
    return made


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


@pytest.mark.parametrize(
    "end",
    [[tick(0, 7), Departure(0, "simulator 0: exited; starting it again")], [tick(0, *range(5))]],
    ids=["departed-in-one-breath", "refused-for-its-many-agents"],
)
def test_a_simulator_that_is_gone_leaves_nothing_to_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: list[Tick | Departure]
) -> None:
    monkeypatch.setattr(collector, "MAX_AGENTS", 2)
    bridge = ScriptedBridge(
        [tick(0, 7, first=True)],
        end,
        [tick(0, 7, reward=99.0, first=True)],  # the successor's first message: nobody's reward
        [tick(0, 7, reward=3.0)],
        [],
    )
    behaviors = run(bridge, tmp_path)
    assert behaviors["B"].step == 1


@pytest.mark.parametrize(
    "error",
    [CallbackError("no"), SaveError(Path("x"), OSError(28, "no")), OutOfMemory("no")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_no_simulator_caused_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: UserError
) -> None:
    def add(*_: object) -> None:
        raise error

    monkeypatch.setattr(Behavior, "add", add)
    with pytest.raises(type(error), match="no"):
        run(ScriptedBridge([tick(0, 5, first=True)], [tick(0, 5)], []), tmp_path)


def test_a_second_simulator_with_another_spec_is_refused_alone(tmp_path: Path) -> None:
    stranger = Tick(1, {"B?team=0": OTHER}, {})
    bridge = ScriptedBridge([tick(0, 1, first=True)], [stranger, tick(0, 1)], [])
    behaviors = run(bridge, tmp_path)
    assert [simulator for simulator, _ in bridge.rejected] == [1]
    assert "sensor 'o' had shape (2,), now (3,)" in bridge.rejected[0][1]
    assert behaviors["B"].step == 1


def test_a_first_behavior_without_settings_ends_a_launched_run(tmp_path: Path) -> None:
    stranger = Tick(0, {"Unheard?team=0": SPEC}, {})
    with pytest.raises(UserError, match="'Unheard' has not been specified"):
        run(ScriptedBridge([stranger], [], launched=True), tmp_path)
    bridge = ScriptedBridge([stranger], [])
    run(bridge, tmp_path / "attached")
    assert "'Unheard' has not been specified" in bridge.rejected[0][1]


def test_too_many_agents_cost_even_a_launched_simulator_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_AGENTS", 2)
    crowd = tick(1, *range(5), first=True)
    bridge = ScriptedBridge([tick(0, 5, first=True), crowd], [tick(0, 5)], [], launched=True)
    behaviors = run(bridge, tmp_path)
    assert [simulator for simulator, _ in bridge.rejected] == [1]
    assert "expected at most 2 agents in one simulator, got a message of 5 rows" in bridge.rejected[0][1]
    assert behaviors["B"].step == 1


def test_a_mistake_of_ours_costs_the_visitor_that_meets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    observe, fragile = TrajectoryAssembler.observe, 1313

    def fail(self: TrajectoryAssembler, simulator: int, team: int, batch: StepBatch, *others: Any) -> Any:
        observed = observe(self, simulator, team, batch, *others)
        if fragile in batch.agent_ids:  # half of its tick is done
            raise IndexError("index 7 is out of bounds")
        return observed

    monkeypatch.setattr(TrajectoryAssembler, "observe", fail)
    script = (
        [tick(0, 5, first=True), tick(1, 5, first=True)],
        [tick(0, 5), tick(1, 5, fragile)],
        [tick(0, 5), tick(1, 5, first=True)],  # the next one of that number
        [tick(0, 5), tick(1, 5)],
        [],
    )
    bridge = ScriptedBridge(*script)
    behaviors = run(bridge, tmp_path)
    failure = "observing its message failed in the trainer: IndexError: 'index 7 is out of bounds'"
    assert bridge.rejected == [(1, failure)]
    assert [simulator for simulator, _ in bridge.replies] == [0, 1, 0, 0, 1, 0, 1]
    assert behaviors["B"].step == 3 + 1
    assert caplog.text.count("Traceback (most recent call last)") == 1
    with pytest.raises(IndexError):
        run(ScriptedBridge(*script, launched=True), tmp_path)


def test_a_save_that_is_asked_for_is_made_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = ScriptedBridge([tick(0, 5, first=True)], [tick(0, 5)], [])
    asked, saved = iter([True]), list[list[str]]()

    def autosave(_: Recorder, behaviors: Iterable[Behavior]) -> bool:
        saved.append([behavior.name for behavior in behaviors])
        return True

    monkeypatch.setattr(bridge, "take_save_request", lambda: next(asked, False))
    monkeypatch.setattr(Recorder, "autosave", autosave)
    with caplog.at_level(logging.INFO, logger="trainer_service"):
        run(bridge, tmp_path)
    assert saved == [["B"]]
    assert caplog.messages.count("Saved on SIGUSR1. The run continues.") == 1


def test_the_step_budget_ends_the_loop_without_another_action(tmp_path: Path) -> None:
    agents = range(30)
    bridge = ScriptedBridge([tick(0, *agents, first=True)], [tick(0, *agents)], [tick(0, *agents)], [], [])
    behaviors = run(bridge, tmp_path)
    assert behaviors["B"].step == 60
    assert len(bridge.replies) == 2


def two_lessons(require_reset: bool = False) -> dict[str, Any]:
    """Two lessons; the first ends when an episode has returned more than 2.5."""
    criteria = {"behavior": "B", "threshold": 2.5, "require_reset": require_reset}
    lessons = [{"name": "low", "value": 1, "completion_criteria": criteria}, {"name": "high", "value": 2}]
    return {"curriculum": lessons}


(HIGH,) = parameter_records([FloatParameter("height", 2.0)])


def test_a_new_lesson_is_saved_and_told_without_other_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = ScriptedBridge([tick(0, 5, first=True)], [tick(0, 5, ended=1, reward=3.0)], [])
    told_at_save = []
    monkeypatch.setattr(Recorder, "autosave", lambda *_: told_at_save.append(len(bridge.sent)))
    with caplog.at_level(logging.INFO, logger="trainer_service"):
        run(bridge, tmp_path, height=two_lessons(), g=9)
    assert bridge.sent == [(0, HIGH)]
    assert told_at_save == [0]
    assert bridge.resets == []
    assert len(bridge.replies) == 2
    assert "Parameter 'height' is in lesson 'high' and has value 'Float: value=2.0'." in caplog.messages


def test_a_lesson_may_reset_every_simulator_at_its_next_tick(tmp_path: Path) -> None:
    bridge = ScriptedBridge(
        [tick(0, 5, 6, first=True), tick(1, 5, first=True)],
        [tick(0, 5, 6, ended=1, reward=3.0)],  # the lesson is over; agent 6 is in the middle of an episode
        [tick(1, 5, reward=1.0)],  # still of the old lesson
        [tick(0, 5, 6, reward=50.0)],  # first messages after the reset: nobody's rewards
        [tick(1, 5, reward=50.0)],
        [tick(0, 5, 6), tick(1, 5)],
        [tick(0, 6, ended=1, reward=7.0)],
        [],
    )
    behaviors = run(bridge, tmp_path, height=two_lessons(require_reset=True), g=9)
    assert bridge.resets == [0, 1]
    assert bridge.sent == [(0, HIGH), (1, HIGH)]
    assert [simulator for simulator, _ in bridge.replies] == [0, 1, 0, 1, 0, 1, 0]
    # Two steps before the reset, of simulator 0; none of the tick that was answered with one; four in the end.
    assert behaviors["B"].step == 2 + 4
    assert behaviors["B"].summarize(1.0).stats.returns.tolist() == [3.0, 8.0]


def test_a_bad_statistic_is_told_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (nan,) = stat_records([StatMessage("Speed", math.nan, Aggregation.AVERAGE)])
    bad = (SideChannelRecord(STATS, b"\x01\x00"), SideChannelRecord(STATS, b"\x03"), nan, nan)
    bridge = ScriptedBridge([replace(tick(0, 5, first=True), messages=bad)], [tick(0, 5)], [])
    behaviors = run(bridge, tmp_path)
    assert behaviors["B"].step == 1
    assert behaviors["B"].summarize(1.0).series == {}
    assert len([message for message in caplog.messages if "Simulator 0: ignored: statistic" in message]) == 4


def says(*records: SideChannelRecord) -> ScriptedBridge:
    return ScriptedBridge([replace(tick(0, 5, first=True), messages=records)], [tick(0, 5)], [])


def stats(*names: str) -> list[SideChannelRecord]:
    return stat_records([StatMessage(name, 1.0, Aggregation.AVERAGE) for name in names])


def test_names_of_statistics_are_bounded_and_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = says(*stats(*(f"name {i}" for i in range(3 * MAX_NAMES)), "name 0", "\x1b[31m", "n" * 201))
    series = run(bridge, tmp_path)["B"].summarize(1.0).series
    assert len(series) == MAX_NAMES
    assert series["name 0"].count == 2
    assert [message for message in caplog.messages if "gets no more" in message] == [
        f"Simulator 0: ignored: statistic 'name {MAX_NAMES}': 'B' has {MAX_NAMES} names of statistics, and gets "
        "no more. (said 1 times; from now on only counted)"
    ]
    assert len([message for message in caplog.messages if "expected a name of at most 200" in message]) == 2


def test_side_channel_messages_of_a_tick_are_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer_service.running.collection.channels.MAX_MESSAGES", 50)
    series = run(says(*stats(*["name"] * 80)), tmp_path)["B"].summarize(1.0).series
    assert series["name"].count == 50
    assert "says 80 things on side channels with one message; the first 50 are heard" in caplog.text


class Parrot:
    """A side channel as mlagents-envs has them, which repeats what it hears."""

    channel_id = UUID(int=7)

    def __init__(self) -> None:
        self.message_queue: list[bytes] = []

    def on_message_received(self, msg: Any) -> None:
        self.message_queue.append(msg.get_raw_bytes())


def test_users_channels_hear_simulators_and_answer_with_the_reply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    word = SideChannelRecord(Parrot.channel_id, b"hello")
    to_nobody = SideChannelRecord(UUID(int=8), b"hello?")
    bridge = ScriptedBridge(
        [replace(tick(0, 5, first=True), messages=(word, to_nobody, to_nobody))], [tick(0, 5)], []
    )
    hub = ChannelHub([Parrot()])
    hub.greeting(0)
    run(bridge, tmp_path, hub=hub)
    assert bridge.sent == [(0, word)]
    assert len([each for each in caplog.messages if "which has no receiver" in each]) == 1


def test_when_another_team_learns_every_simulator_is_reset(tmp_path: Path) -> None:
    def both(simulator: int, *, first: bool = False) -> Tick:
        (batch,) = tick(simulator, 5).steps.values()
        ids = ("B?team=0", "B?team=1")
        return Tick(simulator, dict.fromkeys(ids, SPEC) if first else {}, dict.fromkeys(ids, batch))

    bridge = ScriptedBridge(
        [both(0, first=True), both(1, first=True)],
        [both(0)],
        [both(1)],  # the second step of team 0, whose turn it was
        [both(0)],  # still of that turn
        [both(0), both(1)],
        [both(0), both(1)],  # two steps of team 1, which end its turn
        [],
    )
    rules = {"team_change": 2, "save_steps": 100}
    behaviors = run(bridge, tmp_path, behaviors={"B": {"max_steps": 50, "self_play": rules}})
    assert bridge.resets == [1, 0, 0, 1]
    assert [simulator for simulator, _ in bridge.replies] == [0, 1, 0, 0, 1]
    assert behaviors["B"].self_play is not None
    rules = behaviors["B"].self_play
    assert (behaviors["B"].step, rules.ghost_steps) == (4, 4)
    assert [rules.learns(team) for team in (0, 1)] == [True, False]


def test_a_finished_behavior_acts_while_the_others_learn(tmp_path: Path) -> None:
    quick = Tick(0, {"Quick?team=0": SPEC}, {"Quick?team=0": tick(0, *range(30)).steps["B?team=0"]})
    both = replace(
        quick, steps={**quick.steps, **tick(0, 5).steps}, new_specs={**quick.new_specs, "B?team=0": SPEC}
    )
    later = replace(both, new_specs={})
    bridge = ScriptedBridge([both], [later], [later], [later], [])
    behaviors = run(bridge, tmp_path, behaviors={"Quick": {"max_steps": 30}, "B": {"max_steps": 3}})
    assert [{name: len(batch) for name, batch in actions.items()} for _, actions in bridge.replies] == [
        {"Quick?team=0": 30, "B?team=0": 1}
    ] * 3
    assert behaviors["Quick"].finished
    assert behaviors["Quick"].step == 90
    assert behaviors["B"].step == 3


def test_who_declares_many_behaviors_waits_while_the_others_go_on(tmp_path: Path) -> None:
    many = Tick(1, {f"N{i}": SPEC for i in range(10)}, {"N9": tick(1, 5).steps["B?team=0"]})
    bridge = ScriptedBridge(
        [tick(0, 5, first=True)], [many, tick(0, 5)], [tick(0, 5)], [tick(0, 5)], [tick(0, 5)], []
    )
    behaviors = run(bridge, tmp_path, behaviors={"B": {}} | {f"N{i}": {} for i in range(10)})
    assert [simulator for simulator, _ in bridge.replies] == [0, 0, 0, 1, 0, 0]
    assert len(bridge.replies[3][1]["N9"]) == 1
    assert len(behaviors) == 11
