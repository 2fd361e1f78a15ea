"""One behavior's policy for many callers: requests that wait are decided in one forward pass."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.running.policy import InvalidRow, Policy
from trainer_service.running.serving.memories import CallerMemories
from unity_bridge.serving.messages import MOST_CALLERS, CallRefused, PolicyAnswer, PolicyRequest
from unity_bridge.steps import ActionBatch

LONGEST_WAIT_S = 0.001
"""How long a request waits for others. The request of a single caller does not wait, but for one in ``_LOOK_BATCHES``,
which tells whether others call at the same time."""
_LOOK_BATCHES = 128


class _Call(NamedTuple):
    rows: ActRequest
    ids: Sequence[str]
    begins: NDArray[np.bool_]
    answer: asyncio.Future[PolicyAnswer]


@dataclass(slots=True)
class _Queue:
    """Calls that wait for likeliest actions, or for drawn ones."""

    calls: list[_Call] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    agents: int = 0
    timer: asyncio.TimerHandle | None = None
    wanted: int = MOST_CALLERS
    """Calls to wait for, about as many as came together lately."""
    batches: int = 0

    def take(self) -> list[_Call]:
        """Removes all calls, and returns the open ones."""
        if self.timer is not None:
            self.timer.cancel()
        calls, few = self.calls, 1 if self.wanted == MOST_CALLERS else self.wanted - 1
        self.batches += 1
        self.wanted = MOST_CALLERS if self.batches % _LOOK_BATCHES == 0 else max(len(calls), few)
        self.calls, self.ids, self.agents, self.timer = [], set(), 0, None
        return [call for call in calls if not call.answer.done()]


class ServedPolicy:
    """A policy with the memories of its callers. To be used in one event loop."""

    def __init__(self, policy: Policy, most_memories: int, memory_age_s: float) -> None:
        self.policy, self._limits = policy, (most_memories, memory_age_s)
        self.memories = CallerMemories(policy.memory_size, *self._limits)
        self.counters = Counter[str]()
        """Calls, refused calls, decisions, batches and their seconds since the start."""
        self._queues = {deterministic: _Queue() for deterministic in (True, False)}

    def replace(self, policy: Policy) -> None:
        """Lets another policy act from now on. Memories are kept if they have the same size."""
        for queue in self._queues.values():
            self._decide(queue)  # these calls were checked against the old one
        if policy.memory_size != self.memories.size:
            self.memories = CallerMemories(policy.memory_size, *self._limits)
        self.policy = policy

    async def act(self, request: PolicyRequest) -> PolicyAnswer:
        """Decides, together with others. Raises CallRefused for a request that does not fit the behavior."""
        self.counters["calls"] += 1
        try:
            rows = self._rows(request)
        except ValueError as error:
            self.counters["calls_refused"] += 1
            row = error.row if isinstance(error, InvalidRow) else None
            caller = "" if row is None else f"caller '{request.ids[row] if request.ids else row}', "
            raise CallRefused(f"{caller}{error}") from None
        queue, loop, callers = (
            self._queues[not request.draws],
            asyncio.get_running_loop(),
            len(rows.allowed_actions),
        )
        if queue.agents + callers > MOST_CALLERS or not queue.ids.isdisjoint(request.ids):
            self._decide(queue)  # a second call of an id needs the memory of the first
        begins = np.zeros(callers, np.bool_) if request.begins is None else request.begins
        call = _Call(rows, request.ids, begins, loop.create_future())
        queue.calls.append(call)
        queue.ids.update(request.ids)
        queue.agents += callers
        if len(queue.calls) >= queue.wanted:
            self._decide(queue)
        elif queue.timer is None:
            queue.timer = loop.call_later(LONGEST_WAIT_S, self._decide, queue)
        return await call.answer

    def _rows(self, request: PolicyRequest) -> ActRequest:
        """The request as the network takes it. Raises ValueError where it does not fit."""
        policy, mask, ids = self.policy, request.action_mask, request.ids
        callers, choices = len(request.observations[0]), policy.spec.action_spec.mask_size
        if mask is not None and len(mask) != callers * choices:
            raise ValueError(f"action_mask: expected {callers} x {choices} bytes, got {len(mask)}")
        for name, given in (("ids", ids), ("begins", request.begins)):
            if given is not None and len(given) not in (callers, 0):
                raise ValueError(f"{name}: expected {callers}, one for each caller, got {len(given)}")
        if len(set(ids)) < len(ids):
            [(twice, _)] = Counter(ids).most_common(1)
            raise ValueError(f"ids: expected each once, got '{twice}' more than once")
        if policy.memory_size and not ids:
            raise ValueError(
                f"ids: the policy of behavior '{policy.behavior}' has a memory: name each caller"
            )
        observations, names = request.observations, [each.name for each in policy.spec.observation_specs]
        if any(request.sensors):
            if sorted(request.sensors) != sorted(names):
                raise ValueError(
                    f"observations: expected {', '.join(names)}, got {', '.join(request.sensors)}"
                )
            observations = [observations[request.sensors.index(name)] for name in names]
        allowed = None if mask is None else mask.reshape(callers, choices) == 0
        return policy.request(observations, allowed, request.agent_indices, request.groups, not request.draws)

    def _decide(self, queue: _Queue) -> None:
        """Answers the open calls of a queue."""
        if calls := queue.take():
            try:
                self._answer(calls)
            except Exception as error:
                for call in calls:
                    if not call.answer.done():
                        call.answer.set_exception(error)

    def _answer(self, calls: Sequence[_Call]) -> None:
        began, requests, kept = time.perf_counter(), [call.rows for call in calls], None
        observations = [
            np.concatenate(each) for each in zip(*(rows.observations for rows in requests), strict=True)
        ]
        allowed = np.concatenate([rows.allowed_actions for rows in requests])
        memories, ids = np.zeros((len(allowed), 0), np.float32), [each for call in calls for each in call.ids]
        if self.policy.memory_size:
            memories, kept = self.memories.read(ids, np.concatenate([call.begins for call in calls]))
        decided = ActRequest(observations, allowed, memories, requests[0].deterministic)
        actions, memories = self.policy.decide(decided)
        if self.policy.memory_size:
            self.memories.write(ids, memories)
        end = 0
        for call in calls:
            part = slice(end, end := end + len(call.begins))
            own = ActionBatch(actions.continuous[part], actions.discrete[part])
            call.answer.set_result(PolicyAnswer(own, None if kept is None else kept[part], self.policy.step))
        self.counters.update(decisions=end, batches=1)
        self.counters["batch_seconds"] += time.perf_counter() - began  # type: ignore[assignment]
