"""Requests that wait together, and the memories of callers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

from policy_services import behavior_of

from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from trainer_service.running.serving.memories import CallerMemories
from trainer_service.running.serving.served_policy import ServedPolicy
from unity_bridge.serving.messages import MOST_CALLERS, CallRefused, PolicyRequest


def request(value: float = 1.0, ids: Sequence[str] = (), rows: int = 1, **changes: Any) -> PolicyRequest:
    fields = {
        "run": "", "behavior": "", "ids": ids, "begins": None, "sensors": [""], "action_mask": None,
        "observations": [np.full((rows, 3), value, np.float32)], "agent_indices": None, "groups": None, "draws": False,
    }  # fmt: skip
    return PolicyRequest(**{**fields, **changes})


@pytest.fixture
def served() -> ServedPolicy:
    return ServedPolicy(Policy(checkpoint_of(behavior_of("LSTM"))), 1000, 60.0)


def test_requests_that_wait_are_one_batch_and_get_their_own_rows(served: ServedPolicy) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(served.act(request(i, [f"{i}"])) for i in range(20)))

    answers = asyncio.run(ask())
    assert [served.counters[key] for key in ("batches", "decisions", "calls")] == [1, 20, 20]
    for i, answer in enumerate(answers):
        alone, _ = served.policy.predict([np.full((1, 3), i, np.float32)])
        np.testing.assert_allclose(answer.actions.continuous, alone.continuous, atol=1e-5)


def test_calls_of_one_id_follow_each_other_in_one_batch(served: ServedPolicy) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(served.act(request(i, ["me"])) for i in range(3)))

    memories = None
    for i, answer in enumerate(asyncio.run(ask())):
        own, memories = served.policy.predict([np.full((1, 3), i, np.float32)], memories)
        np.testing.assert_allclose(answer.actions.continuous, own.continuous, atol=1e-5)
        assert answer.kept == [i > 0]


def test_a_call_that_is_over_is_left_out_and_a_bad_one_refused_alone(served: ServedPolicy) -> None:
    async def ask() -> list[Any]:
        calls = [
            asyncio.ensure_future(served.act(request(np.nan if i == 1 else i, [f"{i}"]))) for i in range(4)
        ]
        await asyncio.sleep(0)
        calls[2].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    first, bad, gone, last = asyncio.run(ask())
    assert isinstance(bad, CallRefused)
    assert isinstance(gone, asyncio.CancelledError)
    assert first.step == last.step
    assert (served.counters["decisions"], served.counters["calls_refused"], len(served.memories)) == (2, 1, 2)


def test_a_batch_has_no_more_rows_than_a_message(served: ServedPolicy) -> None:
    many = MOST_CALLERS // 2 + 1

    async def ask() -> None:
        messages = [request(rows=many, ids=[f"{i} {j}" for j in range(many)]) for i in range(3)]
        await asyncio.gather(*map(served.act, messages))

    asyncio.run(ask())
    assert (served.counters["batches"], served.counters["decisions"]) == (3, 3 * many)


def test_likeliest_and_drawn_actions_are_batches_of_their_own(served: ServedPolicy) -> None:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(served.act(request(ids=[f"{i}"], draws=i % 2 > 0)) for i in range(8)))

    actions = np.concatenate([answer.actions.continuous for answer in asyncio.run(ask())])
    assert served.counters["batches"] == 2
    assert np.ptp(actions[::2], axis=0).max() < 1e-6
    assert np.ptp(actions[1::2], axis=0).min() > 1e-3


def test_what_waits_is_decided_by_the_policy_that_it_came_for(served: ServedPolicy) -> None:
    newer = Policy(checkpoint_of(behavior_of("LSTM", 2, memory={"memory_size": 4, "sequence_length": 4})))
    newer.step = 7

    async def ask() -> tuple[Any, Any]:
        waits = asyncio.ensure_future(served.act(request(ids=["me"])))
        await asyncio.sleep(0)
        served.replace(newer)
        return await waits, await served.act(request(ids=["me"]))

    before, after = asyncio.run(ask())
    assert (before.step, after.step, after.kept.tolist()) == (0, 7, [False])


def test_callers_are_forgotten_by_age_and_by_number() -> None:
    now, rng = [0.0], np.random.default_rng(0)
    memories = CallerMemories(2, 300, 10.0, clock=lambda: now[0])
    for second in range(20):
        now[0] = float(second)
        ids = [f"{second} {i}" for i in range(20)]
        rows = rng.random((20, 2)).astype(np.float32)
        memories.write(ids, rows)
        read, kept = memories.read(ids, np.arange(20) % 5 == 0)
        np.testing.assert_array_equal(kept, np.arange(20) % 5 != 0)
        np.testing.assert_array_equal(read, rows * kept[:, None])
        assert len(memories) == min(20 * (second + 1), 220)  # those of this second and of ten before
    memories.write([f"new {i}" for i in range(1000)], np.ones((1000, 2), np.float32))
    assert len(memories) == 300
    assert memories.read(["new 999", "new 0", "19 0"], np.zeros(3, np.bool_))[1].tolist() == [
        True,
        False,
        False,
    ]
    now[0] = 100.0
    memories.forget_silent()
    assert (len(memories), memories.forgotten) == (0, 400 + 1000)
