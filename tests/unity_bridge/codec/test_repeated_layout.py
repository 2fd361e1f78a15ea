"""A message of a repeated layout means what the general way reads from it; all others are left to the general way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fuzzing import DICE, examples
from hypothesis import given
from mutations import mutated_message, side_channel
from step_batches import require_equal_batches

from unity_bridge.codec import repeated_layout
from unity_bridge.errors import WireError
from unity_bridge.fast_paths import SLOW
from unity_bridge.server.session import Session, Step
from unity_bridge.side_channels import STATS, SideChannelRecord
from unity_bridge.simulators.conversation import introduction
from unity_bridge.steps import ActionBatch, StepBatch
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BALL, WALKER = "Ball?team=0", "Walker?team=1"
ACTIONS = {BALL: (2, (3, 2)), WALKER: (1, ())}
"""Continuous size and branches of each behavior."""

RECORDS = [SideChannelRecord(STATS, b"heard")]


class World:
    """A simulator's messages, of which each may be unusual in one way."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.agents = {BALL: list(range(dice.choice([1, 2, 5]))), WALKER: [7, 200]}
        self.sparse = dice.random() < 0.3

    def message(self, change: str = "") -> bytes:
        """Returns the next message."""
        message = _ok()
        output = message.unity_output
        for behavior, agents in self.agents.items():
            if change == "nobody" and behavior == WALKER:
                output.rl_output.agentInfos[behavior].SetInParent()
                continue
            rows = output.rl_output.agentInfos[behavior].value
            if change == "end":
                rows.append(self.row(behavior, agents[0], done=True))
            if change == "interruption":
                rows.append(self.row(behavior, agents[-1], done=True, max_step_reached=True))
            rows.extend(self.row(behavior, agent, change) for agent in agents)
        if change == "records":
            output.rl_output.side_channel = side_channel(self.dice)
        if change == "description":
            _describe(message, self.dice.choice([BALL, WALKER, "Late?team=0"]))
        if change == "other bytes":
            return mutated_message(self.dice, message.SerializeToString())
        return message.SerializeToString()

    def row(self, behavior: str, agent: int, change: str = "", **fields: Any) -> AgentInfoProto:
        dice = self.dice
        info = AgentInfoProto(id=agent, **fields)
        info.reward = 0.0 if self.sparse and dice.random() < 0.3 else dice.choice([0.5, -0.0, 1e9])
        if behavior == WALKER:
            info.group_id, info.group_reward = 3, 0.25
        if behavior == BALL and (change == "mask" or agent == 1):
            choices = 5 if change != "long mask" else 6
            info.action_mask.extend(dice.random() < 0.5 for _ in range(choices))
        for name, size in (("a", 3), ("b", 1)):
            seen = info.observations.add(shape=[size], dimension_properties=[1], name=name)
            seen.float_data.data.extend(dice.uniform(-1, 1) for _ in range(size))
            if change == "unusable" and dice.random() < 0.5:
                seen.float_data.data[0] = dice.choice([float("nan"), float("inf"), 1e30, 1e12])
        return info


def shuffled(world: World) -> bytes:
    world.dice.shuffle(world.agents[BALL])
    return world.message()


def other_agents(world: World) -> bytes:
    world.agents[BALL] = [agent + 1 for agent in world.agents[BALL]]
    return world.message()


def unusual(change: str) -> Callable[[World], bytes]:
    return lambda world: world.message(change)


TICKS = (
    *(World.message,) * 20,
    shuffled,
    other_agents,
    *map(
        unusual,
        (
            "nobody", "end", "interruption", "records", "description", "mask", "long mask", "unusable", "unusable",
            "other bytes",
        ),
    ),
)  # fmt: skip


def _ok() -> UnityMessageProto:
    message = UnityMessageProto()
    message.header.status = 200
    return message


def _describe(message: UnityMessageProto, behavior: str) -> None:
    parameters = message.unity_output.rl_initialization_output.brain_parameters.add(brain_name=behavior)
    continuous, branches = ACTIONS.get(behavior, (1, ()))
    parameters.action_spec.num_continuous_actions = continuous
    parameters.action_spec.num_discrete_actions = len(branches)
    parameters.action_spec.discrete_branch_sizes.extend(branches)


def sessions(monkeypatch: pytest.MonkeyPatch) -> tuple[Session, Session]:
    """A session with fast paths, and one without."""
    monkeypatch.delenv(SLOW, raising=False)
    fast = Session(seed=1, num_areas=1)
    monkeypatch.setenv(SLOW, "1")
    return fast, Session(seed=1, num_areas=1)


def opening(world: World) -> Iterator[bytes]:
    yield introduction()
    yield _ok().SerializeToString()
    first = UnityMessageProto.FromString(world.message())
    for behavior in (BALL, WALKER):
        _describe(first, behavior)
    yield first.SerializeToString()


def heard(session: Session, data: bytes) -> Any:
    """What a session makes of a message; the text of its refusal."""
    try:
        return session.receive(data)
    except WireError as error:
        return str(error)


def answers(step: Step, dice: random.Random) -> dict[str, ActionBatch]:
    """Actions for those that wait, of some behaviors."""
    chosen = {}
    for behavior, batch in step.batches.items():
        n = len(batch) - batch.num_terminal
        continuous, branches = ACTIONS.get(behavior, (1, ()))
        discrete = np.array([[dice.choice([0, 1, 200]) for _ in branches] for _ in range(n)], np.int32)
        if dice.random() < 0.8:
            chosen[behavior] = ActionBatch(
                np.full((n, continuous), dice.random(), np.float32), discrete.reshape(n, len(branches))
            )
    return chosen


def require_equal(one: Any, other: Any) -> None:
    """Fails where two sessions made something else of a message."""
    assert type(one) is type(other), (one, other)
    if not isinstance(one, Step) or not isinstance(other, Step):
        assert (
            one == other
            if isinstance(one, str)
            else getattr(one, "data", None) == getattr(other, "data", None)
        )
        return
    assert one.new_specs == other.new_specs
    assert (list(one.batches), one.messages, dict(one.replaced)) == (
        list(other.batches),
        other.messages,
        dict(other.replaced),
    )
    for behavior, batch in one.batches.items():
        require_equal_batches(batch, other.batches[behavior])
        assert all(values.flags.writeable for values in (batch.agent_ids, *batch.observations))


@examples(60)
@given(DICE)
def test_a_conversation_is_the_same_with_and_without_fast_paths(dice: random.Random) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fast, slow = sessions(monkeypatch)
    world = World(dice)
    messages = [*opening(world), *(dice.choice(TICKS)(world) for _ in range(25))]
    for data in messages:
        ours, theirs = heard(fast, data), heard(slow, data)
        require_equal(ours, theirs)
        if isinstance(ours, str):
            return
        if isinstance(ours, Step):
            chosen = answers(ours, dice)
            records = RECORDS if dice.random() < 0.1 else []
            assert fast.reply(chosen, records) == slow.reply(chosen, records)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> tuple[Session, list[bool]]:
    """A session after three messages of one layout, and whether each later one repeated it."""
    was_repeated: list[bool] = []
    read = repeated_layout.RepeatedLayouts.read

    def noted(messages: repeated_layout.RepeatedLayouts, data: bytes) -> dict[str, StepBatch] | None:
        batches = read(messages, data)
        was_repeated.append(batches is not None)
        return batches

    session, _ = sessions(monkeypatch)
    world = World(random.Random(1))
    world.sparse = False
    for data in [*opening(world), *(world.message() for _ in range(3))]:
        session.receive(data)
    monkeypatch.setattr(repeated_layout.RepeatedLayouts, "read", noted)
    return session, was_repeated


def test_ids_of_a_repeated_message_are_the_readers(reader: tuple[Session, list[bool]]) -> None:
    session, was_repeated = reader
    world = World(random.Random(1))
    world.sparse = False
    for _ in range(2):
        step = session.receive(world.message())
        assert isinstance(step, Step)
        for behavior, batch in step.batches.items():
            assert batch.agent_ids.tolist() == world.agents[behavior]
            batch.agent_ids[:] = batch.group_ids[:] = -1
    assert was_repeated == [True, True]
