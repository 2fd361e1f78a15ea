"""Policies of several kinds, served in this process, and a client of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch
from unlike_agents import make_team

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import save_checkpoint
from trainer_service.running.serving.served_runs import ServedRun, act
from unity_bridge.serving.server import SERVICE, policy_server
from unity_bridge.specs import ActionSpec, BehaviorSpec, MemberSpec, ObservationSpec
from unity_bridge.wire import policy_service_pb2 as wire

KINDS = ("vector", "picture", "LSTM", "hybrid", "member")
MEMORY = {"memory_size": 8, "sequence_length": 4}
_EYES, _SPEED = ObservationSpec("eyes", (3,)), ObservationSpec("speed", (2,))
_SPECS = {
    "vector": BehaviorSpec((_EYES, _SPEED), ActionSpec(2)),
    "picture": BehaviorSpec((ObservationSpec("camera", (3, 20, 24)), _SPEED), ActionSpec(0, (4,))),
    "LSTM": BehaviorSpec((_EYES,), ActionSpec(2)),
    "talking": BehaviorSpec((_EYES,), ActionSpec(0, (3,))),
    "hybrid": BehaviorSpec((_EYES, _SPEED), ActionSpec(2, (3, 4))),
}


def behavior_of(kind: str, seed: int = 1, **network: Any) -> Behavior:
    """An untrained behavior whose actions depend on all that it observes."""
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 8, "buffer_size": 32},
        "network_settings": {
            "hidden_units": 16, "num_layers": 1, **({"memory": MEMORY} if kind == "LSTM" else {}), **network
        },
    }  # fmt: skip
    if kind == "talking":  # each decides from the observations of its group
        settings |= {"trainer_type": "sic", "hyperparameters": {"group_size": 3}}
    if kind == "member":
        keeper = MemberSpec("Keeper", (_SPEED,), ActionSpec(1), 1)
        members = [keeper, MemberSpec("Player", (_EYES,), ActionSpec(0, (3,)), 2)]
        return make_team(
            members, seed, **{**settings, "trainer_type": "mappo", "hyperparameters": {"agent_ids": True}}
        )
    chosen = TrainerSettings.model_validate(settings)
    behavior = Behavior(kind, _SPECS[kind], chosen, Compute(torch.device("cpu"), seed))
    behavior.prepare()
    return behavior


def save(behavior: Behavior, run: Path, step: int = 100) -> Path:
    """Writes the checkpoint of a run. Returns the run's folder."""
    behavior.step = step
    save_checkpoint(checkpoint_of(behavior), run / behavior.name / "checkpoint.safetensors")
    (run / "configuration.yaml").touch()
    return run


@dataclass
class Rows:
    """What callers observe, as arrays and in the words of ``Policy.predict`` and of the wire."""

    observations: Sequence[np.ndarray]
    allowed: np.ndarray | None = None
    indices: np.ndarray | None = None

    @classmethod
    def of(cls, policy: Policy, rows: int, rng: np.random.Generator) -> Rows:
        """Random ones, with masks that leave a choice in each branch, and indices where the policy needs them."""
        sensors = policy.spec.observation_specs
        drawn = [
            rng.random((rows, *each.shape)).astype(np.float32) * 2 - (len(each.shape) == 1)
            for each in sensors
        ]
        branches = policy.spec.action_spec.discrete_branches
        allowed = rng.random((rows, sum(branches))) < 0.5
        for end in np.cumsum(branches):
            allowed[:, end - 1] = True
        indices = rng.integers(0, policy.num_agents, rows) if policy.num_agents else None
        return cls(drawn, allowed if branches else None, indices)

    def fields(self) -> dict[str, Any]:
        return {
            "observations": [wire.Observation(shape=each.shape, floats=each.tobytes()) for each in self.observations],
            "action_mask": b"" if self.allowed is None else (~self.allowed).tobytes(),
            "agent_indices": None if self.indices is None else self.indices.tolist(),
        }  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        return {"allowed_actions": self.allowed, "agent_indices": self.indices}


@dataclass
class Answer:
    continuous: np.ndarray
    discrete: np.ndarray
    kept: list[bool]
    step: int

    @classmethod
    def of(cls, message: wire.ActResponse, policy: Policy) -> Answer:
        actions = policy.spec.action_spec
        continuous = np.frombuffer(message.continuous_actions, "<f4").reshape(
            -1, actions.continuous_size or 1
        )
        discrete = np.frombuffer(message.discrete_actions, "<i4").reshape(-1, actions.discrete_size or 1)
        kept = [each == wire.ActResponse.KEPT for each in message.memories]
        return cls(continuous, discrete, kept, message.step)


class Client:
    """A channel to a service."""

    def __init__(self, port: int, channel: grpc.Channel | None = None) -> None:
        options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 100)]
        self.channel = channel or grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        codecs = (wire.ActRequest.SerializeToString, wire.ActResponse.FromString)
        self.act = self.channel.unary_unary(f"/{SERVICE}/Act", *codecs)
        self.stream = self.channel.stream_stream(f"/{SERVICE}/ActStream", *codecs)
        self.raw = self.channel.unary_unary(f"/{SERVICE}/Act")


@dataclass
class Service:
    """A service that runs in a thread."""

    served: Mapping[str, ServedRun]
    port: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    client: Client = field(init=False)

    def run(self, coroutine: Any) -> Any:
        """Runs a coroutine in the loop of the service."""
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)


def served_runs(runs: Mapping[str, Path]) -> Mapping[str, ServedRun]:
    """The newest policies of runs by name."""
    return {name: ServedRun(folder, "last", Policy.load, (1000, 600.0)) for name, folder in runs.items()}


@contextmanager
def service(served: Mapping[str, ServedRun], security: Any = None) -> Iterator[Service]:
    """Serves as long as the context lasts."""
    opened, ready, over = Service(served), threading.Event(), asyncio.Event()

    async def main() -> None:
        async with policy_server("127.0.0.1", 0, partial(act, served), security) as port:
            opened.port, opened.loop = port, asyncio.get_running_loop()
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(60)
    opened.client = Client(opened.port)
    try:
        yield opened
    finally:
        opened.client.channel.close()
        assert opened.loop is not None
        opened.loop.call_soon_threadsafe(over.set)
        thread.join()
