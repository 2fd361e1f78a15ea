"""The usual tick, with its slices, beside one that knows no usual ticks, and beside a loop over agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st

from trainer_service.learning.rollout import assembler as module
from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.assembler import Decisions, Observed, TrajectoryAssembler
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec((ObservationSpec("clock", (2,)),), ActionSpec(1, (3,)))
MEMORY = 2


class Change(NamedTuple):
    """What happens in a tick of one simulator's team."""

    simulator: int
    team: int
    kind: str
    number: int


class Tick(NamedTuple):
    simulator: int
    team: int
    batch: StepBatch


CHANGES = st.builds(
    Change,
    simulator=st.integers(0, 1),
    team=st.integers(0, 1),
    # The usual tick is likeliest.
    kind=st.sampled_from(
        ["none"] * 6 + ["end", "end", "renew", "come", "leave", "shuffle", "silent", "drop"]
    ),
    number=st.integers(0, 99),
)
STREAMS = st.lists(CHANGES, min_size=5, max_size=60)


def ticks(stream: list[Change]) -> Iterator[Tick | int]:
    """The ticks of a stream, and numbers of simulators that leave."""
    alive: dict[tuple[int, int], list[int]] = {}
    newest = 0
    for clock, (simulator, team, kind, number) in enumerate(stream):
        key = (simulator, team)
        if kind == "drop":
            alive = {other: ids for other, ids in alive.items() if other[0] != simulator}
            yield simulator
            continue
        ids = list(alive.get(key, [])) or [newest + i for i in range(1 + number % 20)]
        newest = max(newest, *ids) + 1
        ended: list[int] = []
        if kind in ("end", "renew", "leave"):
            ended = ids[number % len(ids) :][: 1 + number % 3]
        if kind in ("renew", "leave"):
            ids = [newest + agent if agent in ended else agent for agent in ids]
            if kind == "leave":
                ids = [agent for agent in ids if agent < newest]
            newest += max(ended) + 1
        elif kind == "come":
            ids.insert(number % (len(ids) + 1), newest)
        elif kind == "shuffle":
            np.random.default_rng(number).shuffle(ids)
        alive[key] = ids
        asked = [agent for agent in ids if kind != "silent" or agent % 3 != number % 3]
        yield Tick(simulator, team, batch(ended, asked, clock, number))


def batch(ended: list[int], asked: list[int], clock: int, number: int) -> StepBatch:
    ids = np.array([*ended, *asked], np.int64)
    n, rows = len(ids), np.arange(len(ids))
    terminated = (rows < len(ended)) & (ids % 2 == number % 2)
    return StepBatch(
        agent_ids=ids,
        observations=(np.stack([ids, np.full(n, clock)], axis=1).astype(np.float32),),
        rewards=(ids + clock / 64).astype(np.float32),
        terminated=terminated,
        truncated=(rows < len(ended)) & ~terminated,
        allowed_actions=(ids[:, None] + np.arange(3)) % 4 > 0,
        group_ids=ids % 3,
        group_rewards=np.full(n, clock, np.float32),
    )


def decisions(rows: int, number: int) -> Decisions:
    rng = np.random.default_rng(number)
    return Decisions(
        rng.normal(size=(rows, 1)).astype(np.float32),
        rng.integers(3, size=(rows, 1)),
        rng.normal(size=rows).astype(np.float32),
        rng.normal(size=(rows, MEMORY)).astype(np.float32),
    )


class General(TrajectoryAssembler):
    """An assembler that knows no usual ticks: it looks every agent up and copies every row."""

    def observe(self, *arguments: Any) -> Observed:
        self._waiting.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "as_index", lambda rows: rows)
            return super().observe(*arguments)

    def acted(self, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "as_index", lambda rows: rows)
            super().acted(*arguments)


def play(assembler: TrajectoryAssembler, stream: list[Change], *, by_group: bool) -> list[Observed]:
    """All that an assembler says of a stream; every second time, two ticks are answered together."""
    allocator = AgentIndexAllocator() if by_group else None
    said: list[Observed] = []
    waiting: list[tuple[int, Observed, StepBatch]] = []

    def act() -> None:
        if not waiting:
            return
        rows = np.concatenate([observed.waiting for _, observed, _ in waiting])
        seen = np.concatenate([each.observations[0][each.num_terminal :] for _, _, each in waiting])
        allowed = np.concatenate([each.allowed_actions[each.num_terminal :] for _, _, each in waiting])
        remembered = assembler.memories(rows).copy()
        chosen = decisions(len(rows), len(said))
        chosen = dataclasses.replace(chosen, memories=chosen.memories + remembered)
        assembler.acted(rows, (seen,), allowed, chosen)
        waiting.clear()

    for number, tick in enumerate(ticks(stream)):
        if isinstance(tick, int):
            act()
            assembler.drop(tick)
            if allocator is not None:
                allocator.drop(tick)
            continue
        if number % 2 or any(simulator == tick.simulator for simulator, _, _ in waiting):
            act()
        if not waiting:
            assembler.tidy()
        membership = allocator.assign(*tick) if allocator is not None else None
        observed = assembler.observe(tick.simulator, tick.team, tick.batch, membership)
        said.append(observed)
        waiting.append((tick.simulator, observed, tick.batch))
    return said


def assert_same(one: Any, other: Any, what: str = "") -> None:
    """Compares records of arrays, bit for bit."""
    assert type(one) is type(other), what
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name != "waiting":  # rows mean nothing outside
                assert_same(getattr(one, field.name), getattr(other, field.name), f"{what}.{field.name}")
    elif isinstance(one, tuple):
        for i, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{what}[{i}]")
    else:
        np.testing.assert_array_equal(one, other, err_msg=what)


@pytest.fixture(autouse=True, scope="module")
def _small_stores() -> Iterator[None]:
    """Stores that soon grow in both directions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FIRST_COLUMNS", 2)
        patch.setattr(module, "_FIRST_ROWS", 2)
        yield


@examples(50)
@pytest.mark.parametrize("by_group", [False, True], ids=["alone", "by group"])
@given(stream=STREAMS, horizon=st.sampled_from([1, 2, 3, 7, 100]))
def test_usual_ticks_mean_what_all_ticks_mean(by_group: bool, stream: list[Change], horizon: int) -> None:
    usual = play(TrajectoryAssembler(SPEC, horizon, MEMORY, by_group=by_group), stream, by_group=by_group)
    general = play(General(SPEC, horizon, MEMORY, by_group=by_group), stream, by_group=by_group)
    assert len(usual) == len(general)
    for number, (one, other) in enumerate(zip(usual, general, strict=True)):
        assert_same(one, other, f"tick {number}")
