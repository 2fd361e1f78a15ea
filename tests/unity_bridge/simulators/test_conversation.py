from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    Aggregation,
    EnvironmentParameterMessage,
    FloatParameter,
    StatMessage,
    pack_records,
    parameter_records,
    parse_stat,
    unpack_records,
)
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.conversation import converse
from unity_bridge.simulators.scene import Steps, step_batch, vector_sensor
from unity_bridge.simulators.scenes.basic import Basic
from unity_bridge.simulators.scenes.sorter import PATIENCE, Sorter
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.command_pb2 import CommandProto
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BASIC = "Basic?team=0"
BALL = "3DBall?team=0"
SORTER = "Sorter?team=0"
RIGHT, LEFT = 2, 1


class Latecomer:
    """One agent of A from the start, two of B from the second message on. Remembers the actions that it got."""

    frame_s = 0.1

    def __init__(self) -> None:
        self.received: list[Mapping[str, ActionBatch]] = []
        self.seeds: list[int | None] = []

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensors = (vector_sensor("numbers", 2),)
        return {
            "A?team=0": BehaviorSpec(sensors, ActionSpec(1)),
            "B?team=1": BehaviorSpec(sensors, ActionSpec(2)),
        }

    def reset(self, seed: int | None = None) -> Steps:
        self.seeds.append(seed)
        return {"A?team=0": self._rows(3), "B?team=1": self._rows()}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self.received.append(actions)
        return {"A?team=0": self._rows(3), "B?team=1": self._rows(9, 4)}

    def render(self) -> np.ndarray:
        return np.zeros((4, 4, 3), np.uint8)

    def close(self) -> None:
        pass

    @staticmethod
    def _rows(*agents: int):
        seen = np.arange(2 * len(agents), dtype=np.float32).reshape(len(agents), 2)
        return step_batch([seen], np.zeros(len(agents), np.float32), agent_ids=np.array(agents, np.int64))


def infos(message: UnityMessageProto, behavior: str) -> list:
    return list(message.unity_output.rl_output.agentInfos[behavior].value)


def described(message: UnityMessageProto) -> list[str]:
    return [brain.brain_name for brain in message.unity_output.rl_initialization_output.brain_parameters]


def tiles(info) -> int:
    """How many entities a row of the sorter lists."""
    entities = np.array(info.observations[0].float_data.data).reshape(20, -1)
    return int(entities.any(axis=1).sum())


def parameters(*messages: EnvironmentParameterMessage) -> bytes:
    return pack_records(parameter_records(messages))


def test_the_introduction_states_versions_and_abilities_and_nothing_else(trainer) -> None:
    with pytest.raises(WireError, match="the trainer refused the introduction"):
        converse(trainer.exchange, Basic())
    (message,) = trainer.received
    introduction = message.unity_output.rl_initialization_output
    assert message.header.status == 200
    assert introduction.name == "unity_bridge.simulators"
    assert introduction.communication_version == "1.5.0"
    assert introduction.package_version.startswith("3.")
    abilities = introduction.capabilities
    assert [field.name for field, value in abilities.ListFields() if value] == [
        field.name for field in abilities.DESCRIPTOR.fields
    ]
    assert not introduction.brain_parameters
    assert not message.unity_output.HasField("rl_output")


def test_a_behavior_is_described_only_beside_its_first_agents(trainer) -> None:
    step = trainer.command(CommandProto.STEP)
    trainer.handshake().then(step, step)
    converse(trainer.exchange, Latecomer())
    first, second, third = trainer.received[2:]
    assert described(first) == ["A?team=0"]
    assert described(second) == ["B?team=1"]
    assert described(third) == []
    assert [brain.is_training for brain in first.unity_output.rl_initialization_output.brain_parameters] == [
        True
    ]


def test_end_and_next_start_share_message_and_agent_id(trainer) -> None:
    trainer.handshake().then(*[trainer.act(BASIC, discrete=[[0], [LEFT]])] * 6)
    converse(trainer.exchange, Basic(2))
    for message in (trainer.received[5], trainer.received[8]):
        ended, waiting, again = infos(message, BASIC)
        assert (ended.id, ended.done, ended.max_step_reached) == (1, True, False)
        assert (waiting.id, waiting.done) == (0, False)
        assert (again.id, again.done, again.reward) == (1, False, 0)
        assert list(again.observations[0].float_data.data).index(1) == 10


def test_a_reset_starts_episodes_anew_without_ending_the_old_ones(trainer) -> None:
    trainer.handshake().then(trainer.act(BASIC, discrete=[[RIGHT]]), trainer.command(CommandProto.RESET))
    converse(trainer.exchange, Basic())
    cells = [
        [(list(info.observations[0].float_data.data).index(1), info.done) for info in infos(message, BASIC)]
        for message in trainer.received[2:]
    ]
    assert cells == [[(10, False)], [(11, False)], [(10, False)]]


@pytest.mark.parametrize(("given", "own", "used"), [(12, 5, 5), (12, 0, 0), (-1, None, 2**31 - 1)])
def test_the_first_reset_alone_brings_a_seed(trainer, given: int, own, used: int) -> None:
    scene = Latecomer()
    trainer.handshake(seed=given).then(trainer.command(CommandProto.RESET))
    converse(trainer.exchange, scene, seed=own)
    assert scene.seeds == [used, None]


@pytest.mark.parametrize(
    ("behavior", "agents", "complaint"),
    [
        ("Basik?team=0", 1, r"actions for behavior 'Basik\?team=0': expected one of"),
        (BASIC, 2, r"actions for behavior 'Basic\?team=0': expected actions for 2"),
    ],
)
def test_actions_that_fit_no_agents_are_named(trainer, behavior: str, agents: int, complaint: str) -> None:
    trainer.handshake().then(trainer.act(behavior, discrete=[[0]]))
    with pytest.raises(WireError, match=complaint):
        converse(trainer.exchange, Basic(agents))


def test_actions_reach_the_waiting_agents_in_their_order(trainer) -> None:
    scene = Latecomer()
    act = trainer.act("B?team=1", continuous=[[0.5, 1], [-0.5, -1]])
    trainer.handshake().then(trainer.act("A?team=0", continuous=[[0.25]]), act)
    converse(trainer.exchange, scene)
    first, second = scene.received
    assert first["A?team=0"].continuous.tolist() == [[0.25]]
    assert second["B?team=1"].continuous.tolist() == [[0.5, 1], [-0.5, -1]]


def test_agents_without_an_answer_do_nothing(trainer) -> None:
    scene = Latecomer()
    trainer.handshake().then(trainer.command(CommandProto.STEP), trainer.act("A?team=0", continuous=[[0.25]]))
    converse(trainer.exchange, scene)
    first, second = scene.received
    assert first["A?team=0"].continuous.tolist() == [[0]]
    assert second["B?team=1"].continuous.tolist() == [[0, 0], [0, 0]]


def test_parameters_apply_to_episodes_that_start_after_them(trainer) -> None:
    academy = Academy()
    scene = Sorter(1, academy)
    idle = [trainer.act(SORTER, discrete=[[0]]) for _ in range(PATIENCE)]
    idle[3].unity_input.rl_input.side_channel = parameters(FloatParameter("num_tiles", 7))
    trainer.handshake().then(*idle)
    converse(trainer.exchange, scene, academy=academy)
    *running, (ended, next_one) = [infos(message, SORTER) for message in trainer.received[2:]]
    assert {tiles(info) for (info,) in running} == {tiles(ended)} == {4}
    assert tiles(next_one) == 7


def test_statistics_leave_with_the_message_of_their_step(trainer) -> None:
    academy = Academy()
    trainer.handshake().then(trainer.act(SORTER, discrete=[[0]]), trainer.act(SORTER, discrete=[[0]]))
    converse(trainer.exchange, Sorter(1, academy), academy=academy)
    payloads = [message.unity_output.rl_output.side_channel for message in trainer.received]
    (record,) = unpack_records(payloads[2])
    assert parse_stat(record.body) == StatMessage("Tiles/Number", 4.0, Aggregation.MOST_RECENT)
    assert payloads[:2] == [b"", b""]
    assert payloads[3:] == [b"", b""]


@pytest.mark.parametrize("replies", [1, 2, 3])
def test_a_status_other_than_200_ends_it_at_once(trainer, replies: int) -> None:
    script = trainer.handshake().then(trainer.act(BASIC, discrete=[[0]])).script
    del script[replies:]
    assert converse(trainer.exchange, Basic()).startswith("the trainer ")
    assert len(trainer.received) == replies + 1


@pytest.mark.parametrize("before", [1, 2, 3])
def test_quit_ends_it_at_once(trainer, before: int) -> None:
    trainer.handshake().then(trainer.act(BASIC, discrete=[[0]]))
    trainer.script[before:] = [trainer.command(CommandProto.QUIT)]
    assert converse(trainer.exchange, Basic()) == "the trainer ended the conversation"
    assert len(trainer.received) == before + 1


def test_last_rows_are_sent_before_the_goodbye(trainer) -> None:
    trainer.handshake().then(*[trainer.act(BASIC, discrete=[[LEFT]])] * 20)
    assert converse(trainer.exchange, Basic(), episodes=2) == "2 episodes are complete"
    *_, last, goodbye = trainer.received
    assert infos(last, BASIC)[0].done
    assert goodbye.header.status == 400
    assert not goodbye.HasField("unity_output")
    assert len(trainer.received) == 2 + 7 + 1


def test_a_first_reply_without_an_initialization_is_named(trainer) -> None:
    trainer.then(trainer.command(CommandProto.RESET))
    with pytest.raises(WireError, match="first reply: expected rl_initialization_input, got none"):
        converse(trainer.exchange, Basic())


def test_a_reply_that_is_no_message_is_named() -> None:
    with pytest.raises(
        WireError, match="the trainer's reply: expected a UnityMessageProto, got 3 other bytes"
    ):
        converse(lambda _: b"\xff\xff\xff", Basic())
