"""Messages to simulators on side channels, and the channels that get theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import Message

from trainer_service.config import RunOptions, parse_run_options
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.channels import Channels
from trainer_service.running.curriculum import Curriculum, Progress
from unity_bridge import mlagents_alias
from unity_bridge.server.bridge import SimulatorInfo, Tick
from unity_bridge.side_channels import (
    NOTICES,
    Aggregation,
    SideChannelRecord,
    StatMessage,
    TrainingBehaviorInitialized,
    parameter_records,
    stat_records,
)
from unity_bridge.side_channels.channel_hub import ChannelHub
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


def unpacked(body: bytes, message: Message) -> Any:
    """A message for the Editor's statistics, as the Editor reads it."""
    assert Envelope.FromString(body).Unpack(message)
    return message


EDITOR = SimulatorInfo("3.0.0", "1.5.0", frozenset({"trainingAnalytics", "hybridActions"}))
SPEC = BehaviorSpec((ObservationSpec("body", (1,)),), ActionSpec(1))
PLAIN = SimulatorInfo("3.0.0", "1.5.0", frozenset({"hybridActions"}))


def options_with(**parameters: Any) -> RunOptions:
    return parse_run_options({"behaviors": {"Probe": {}}, "environment_parameters": parameters}).options


@pytest.fixture
def channels() -> Channels:
    options = options_with(mass=2.0)
    return Channels(options, Curriculum(options.environment_parameters or {}).messages, ChannelHub())


def of_lessons(*values: Any) -> dict[str, Any]:
    """A parameter with these lessons, each of which ends at once."""
    done = {"behavior": "Probe", "measure": "progress", "threshold": 0.0}
    lessons = [{"name": f"{n}", "value": each, "completion_criteria": done} for n, each in enumerate(values)]
    return {"curriculum": lessons}


def test_only_parameters_that_changed_are_sent_again() -> None:
    drawn = {"sampler_type": "uniform", "sampler_parameters": {"max_value": 2}}
    options = options_with(mass=drawn, height=of_lessons(1.0, drawn, 3.0), width=of_lessons(4.0, 4.0, 4.0))
    course = Curriculum(options.environment_parameters or {}, 5)
    channels, line = Channels(options, course.messages, ChannelHub()), Line()
    for simulator in (0, 2):
        assert channels.greeting(simulator, PLAIN) == parameter_records(course.messages(simulator))
    for _ in range(2):
        course.advance({"Probe": Progress(0.5)})
        line.sent.clear()
        channels.send_parameters(line)  # type: ignore[arg-type]
        assert line.sent == [
            (simulator, *parameter_records([course.messages(simulator)[1]])) for simulator in (0, 2)
        ]
        assert channels.greeting(2, PLAIN) == parameter_records(course.messages(2))  # it was started again
    channels.drop(0)
    line.sent.clear()
    course.resume({"height": 1}, {})
    channels.send_parameters(line)  # type: ignore[arg-type]
    assert [simulator for simulator, _ in line.sent] == [2]


class Line:
    """A bridge that only remembers what it shall say."""

    def __init__(self, **simulators: SimulatorInfo) -> None:
        self.simulators = {int(number.removeprefix("s")): info for number, info in simulators.items()}
        self.sent: list[tuple[int | None, SideChannelRecord]] = []

    def send(self, records: Iterable[SideChannelRecord], simulator: int | None = None) -> None:
        self.sent += [(simulator, record) for record in records]


def test_what_simulators_say_alike_is_logged_once(channels: Channels, caplog) -> None:
    def tick(simulator: int, *bodies: bytes) -> Tick:
        records = tuple(SideChannelRecord(NOTICES, body) for body in bodies)
        return Tick(simulator, {}, {}, records)

    channels.handle(tick(3, b"texts:1\nslow\n[INFO] forged", b"texts:2\nno mission"), lambda name, stat: True)
    channels.handle(tick(4, b"texts:1\nslow too", b"no topic"), lambda name, stat: True)
    assert [record.getMessage() for record in caplog.records] == [
        "Simulator 3: slow [INFO] forged.",
        "Simulator 3: no mission.",
        "Simulator 4: ignored: notice: expected a topic and a text, got one line.",
    ]


def test_the_most_recent_value_is_of_the_first_simulator_with_the_behavior(channels: Channels) -> None:
    heard: list[tuple[str, float]] = []

    def tick(simulator: int, *declared: str) -> Tick:
        said = tuple(stat_records([StatMessage("Last", float(simulator), Aggregation.MOST_RECENT)]))
        return Tick(simulator, {f"{name}?team=0": SPEC for name in declared}, {}, said)

    for each in (tick(0, "A"), tick(1, "B"), tick(2, "A", "B", "C"), tick(0), tick(1)):
        channels.handle(each, lambda name, stat: heard.append((name, stat.value)) is None)
    assert sorted(heard) == [("A", 0.0), ("A", 0.0), ("B", 1.0), ("B", 1.0), ("C", 2.0)]
    channels.drop(0)
    heard.clear()
    channels.handle(tick(2), lambda name, stat: heard.append((name, stat.value)) is None)
    assert sorted(heard) == [("A", 2.0), ("C", 2.0)]


def test_a_behavior_is_announced_to_a_first_simulator_that_asks(
    channels: Channels, make_behavior: Callable[..., Behavior]
) -> None:
    line, behavior = Line(s0=EDITOR, s1=EDITOR), make_behavior()
    channels.announce(behavior.name, behavior.settings, line)
    ((simulator, record),) = line.sent
    message = unpacked(record.body, TrainingBehaviorInitialized())
    assert simulator == 0
    assert message.trainer_type == "ppo"
    for others in (Line(s0=PLAIN, s1=EDITOR), Line(s1=EDITOR)):
        channels.announce(behavior.name, behavior.settings, others)  # type: ignore[arg-type]
        assert others.sent == []


mlagents_alias.install()
