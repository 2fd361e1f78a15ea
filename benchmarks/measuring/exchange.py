"""One exchange without a wire: what the simulator and our codec cost by themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from unity_bridge.server.session import STOP_MESSAGE, Reply, Session, Step
from unity_bridge.simulators.conversation import converse
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scenes.grid_camera import PictureFormat
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch


@dataclass(frozen=True, slots=True)
class ExchangeCosts:
    """Medians, in microseconds."""

    simulator_us: float
    """To read the actions, move the world and write the message."""

    decode_us: float
    """To read that message."""

    encode_us: float
    """To write the actions."""

    handshake: tuple[bytes, ...]
    """The simulator's first messages, up to and with its first step."""

    messages: tuple[bytes, ...]
    """The exchanges after these."""

    message: bytes
    """One of them, of the usual size."""

    reply: bytes
    """The answer to it."""


def measure_exchange(
    env: str,
    agents: int | None,
    exchanges: int,
    pictures: PictureFormat | None = None,
    team: Mapping[str, Any] | None = None,
) -> ExchangeCosts:
    """Lets a scene and a session of ours talk in one process, with random actions.

    Args:
        env: ``sim:NAME``.
        agents: how many it hosts; None where agents come in teams.
        exchanges: how many to measure.
        pictures: how its cameras send what they see; None for the scene's own way.
        team: options of a scene with teams.
    """
    trainer = _Trainer(exchanges)
    scene = open_scene(env, agents=agents, pictures=pictures, options=team)
    try:
        converse(trainer.exchange, scene, seed=1)
    finally:
        scene.close()
    return trainer.costs()


class _Trainer:
    """The trainer's end of the conversation, with a stopwatch."""

    def __init__(self, exchanges: int) -> None:
        self._left = exchanges
        self._rng = np.random.default_rng(1)
        self._session = Session(seed=1, num_areas=1)
        self._actions: dict[str, ActionSpec] = {}
        self._answered_ns = 0
        self._messages: list[bytes] = []
        self._handshake: list[bytes] = []
        self._simulator_ns: list[int] = []
        self._decode_ns: list[int] = []
        self._encode_ns: list[int] = []
        self._reply = b""

    def exchange(self, data: bytes) -> bytes:
        came_ns = time.perf_counter_ns()
        said = self._session.receive(data)
        read_ns = time.perf_counter_ns()
        if isinstance(said, Reply):
            self._handshake.append(data)
            return said.data
        if not isinstance(said, Step):
            raise RuntimeError(f"expected a step of the scene, got {said}")
        self._actions.update({name: spec.action_spec for name, spec in said.new_specs.items()})
        actions = self._random_actions(said)
        chosen_ns = time.perf_counter_ns()
        self._reply = self._session.reply(actions)
        replied_ns = time.perf_counter_ns()
        if self._messages:
            self._simulator_ns.append(came_ns - self._answered_ns)
            self._decode_ns.append(read_ns - came_ns)
            self._encode_ns.append(replied_ns - chosen_ns)
        else:
            self._handshake.append(data)
        self._messages.append(data)
        self._left -= 1
        if self._left < 0:
            return STOP_MESSAGE
        self._answered_ns = time.perf_counter_ns()
        return self._reply

    def costs(self) -> ExchangeCosts:
        """The measurements."""
        usual = sorted(self._messages[1:], key=len)[len(self._messages) // 2 - 1]
        return ExchangeCosts(
            simulator_us=median(self._simulator_ns) / 1e3,
            decode_us=median(self._decode_ns) / 1e3,
            encode_us=median(self._encode_ns) / 1e3,
            handshake=tuple(self._handshake),
            messages=tuple(self._messages[1:]),
            message=usual,
            reply=self._reply,
        )

    def _random_actions(self, step: Step) -> dict[str, ActionBatch]:
        """Continuous ones at random; of every branch the first choice."""
        actions = {}
        for name, batch in step.batches.items():
            rows = len(batch) - batch.num_terminal
            nothing = ActionBatch.zeros(rows, self._actions[name])
            continuous = self._rng.uniform(-1, 1, nothing.continuous.shape).astype(np.float32)
            actions[name] = ActionBatch(continuous, nothing.discrete)
        return actions
