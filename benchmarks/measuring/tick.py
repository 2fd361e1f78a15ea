"""The cost of a tick for the trainer without a wire: a message is decoded and recorded, and its answer encoded."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self
from unittest import mock

from measuring.exchange import ExchangeCosts
from measuring.scenes import Scene
from trainer_service.commands.train.run import train
from trainer_service.config import load_run_options
from trainer_service.running.metrics.console import Console
from unity_bridge.errors import BridgeError
from unity_bridge.server.bridge import Tick
from unity_bridge.server.events import SimulatorInfo
from unity_bridge.server.session import Session, Step
from unity_bridge.steps import ActionBatch

_NEVER = 10**9
_WARM_UP = 100


@dataclass(frozen=True, slots=True)
class TickCosts:
    """Medians of CPU time, in microseconds."""

    usual_us: float
    """For steps in which no episode ends."""

    mixed_us: float
    """Where some end as they do under random actions."""


def measure_tick(scene: Scene, costs: ExchangeCosts, ticks: int) -> TickCosts:
    """Runs ``learn``'s own loop on recorded messages, without updates.

    costs: of ``measure_exchange`` with this scene.
    """
    usual = min(costs.messages, key=len)  # whoever ends, ends in a row of its own
    return TickCosts(
        usual_us=_tick_us(scene, costs.handshake, [usual], ticks),
        mixed_us=_tick_us(scene, costs.handshake, costs.messages, ticks),
    )


def _tick_us(scene: Scene, handshake: Sequence[bytes], messages: Sequence[bytes], ticks: int) -> float:
    replay = _Replay(handshake, itertools.islice(itertools.cycle(messages), _WARM_UP + ticks))
    with (
        TemporaryDirectory() as results,
        mock.patch("trainer_service.running.training.sources.Bridge", replay),
    ):
        endless = {"max_steps": _NEVER, "summary_freq": _NEVER, "hyperparameters": {"buffer_size": _NEVER}}
        overrides = {
            "behaviors": dict.fromkeys(load_run_options(scene.config).options.behaviors, endless),
            "checkpoint_settings": {"results_dir": results, "run_id": "tick"},
        }
        with suppress(_Over), Console(tty=False, stream=io.StringIO()) as unseen:
            train(load_run_options(scene.config, overrides).options, console=unseen)
    return median(replay.taken_ns[_WARM_UP:]) / 1e3


class _Over(BridgeError):
    """Nothing is left to replay."""


class _Replay:
    """Stands for a bridge: its only simulator says what it was told to say, whatever it is answered."""

    def __init__(self, handshake: Sequence[bytes], messages: Iterable[bytes]) -> None:
        self._session = Session(seed=1, num_areas=1)
        for data in handshake[:-1]:
            self._session.receive(data)
        self._messages: Iterator[bytes] = itertools.chain([handshake[-1]], messages)
        self._began_ns = 0
        self.taken_ns: list[int] = []
        """CPU time of this thread for each tick, from one message to the next."""
        self.simulators: Mapping[int, SimulatorInfo] = {}

    def __call__(self, settings: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def listen(self, host: str, port: int, security: object = None) -> int:
        """Its simulator is here already."""
        return port

    def receive(self, timeout_s: float) -> list[Tick]:
        """The next message, as a tick. Raises _Over after the last."""
        data = next(self._messages, None)
        if data is None:
            raise _Over("the messages are used up")
        now_ns = time.thread_time_ns()
        if self._began_ns:
            self.taken_ns.append(now_ns - self._began_ns)
        self._began_ns = now_ns
        step = self._session.receive(data)
        if not isinstance(step, Step):
            raise RuntimeError(f"expected a step, got {step}")
        return [Tick(0, step.new_specs, step.batches, step.messages, step.replaced)]

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        """Encodes the answer, which is not sent."""
        self._session.reply(actions)
