"""How fast a device computes what learners compute, at the sizes for which one asks for a GPU."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from measuring.device_runs import CPU
from measuring.findings import Finding
from trainer_service.config import TrainerSettings
from trainer_service.config.run_options import Precision
from trainer_service.distributed.learners.ranks import start_ranks
from trainer_service.learning.algorithms import Compute, Learner
from trainer_service.learning.networks.encoders.pictures import picture_encoder
from trainer_service.learning.networks.encoders.precision import encode_pictures
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.training.compute import device_for
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import PICTURE, ActionSpec, BehaviorSpec, ObservationSpec

STEPS = 1024
"""Steps of a rollout: four minibatches of 256 rows, sequences of 64."""
HORIZON = 64
REPETITIONS = 3
CLOSE = 1.5
"""How many times the faster device's update the chosen one's may take."""
NUMBERS = BehaviorSpec((vector_sensor("seen", 32),), ActionSpec(4, ()))
"""Sensors and actions of agents without pictures."""


@dataclass(frozen=True, slots=True)
class Size:
    """A learner of a size that is met in practice."""

    name: str
    spec: BehaviorSpec
    settings: TrainerSettings


def sizes() -> tuple[Size, ...]:
    """The sizes that are measured."""
    lstm = {"memory": {"memory_size": 1024, "sequence_length": HORIZON}}  # h and c: an LSTM of 512
    pictures = {"vis_encode_type": "nature_cnn", "hidden_units": 512, "num_layers": 1}
    return (
        Size("PPO, pictures 84x84x3", _sees_pictures(3), _settings("ppo", **pictures)),
        Size("PPO, pictures 84x84x4", _sees_pictures(4), _settings("ppo", **pictures)),
        Size("PPO, LSTM of 512", NUMBERS, _settings("ppo", hidden_units=512, num_layers=1, **lstm)),
        Size("PPO, 2 x 1,024 units", NUMBERS, _settings("ppo", hidden_units=1024, num_layers=2)),
        Size("PPO, 2 x 64 units", NUMBERS, _settings("ppo", hidden_units=64, num_layers=2)),
        Size("SAC, 2 x 256 units", NUMBERS, _settings("sac", hidden_units=256, num_layers=2)),
        Size("SAC, 2 x 1,024 units", NUMBERS, _settings("sac", hidden_units=1024, num_layers=2)),
    )


def measure_sizes(device: torch.device) -> Iterator[Finding]:
    """Milliseconds of an update on the device and on the CPU, and whether ``auto`` would choose the faster one."""
    for size in sizes():
        behavior = Behavior("Behavior", size.spec, size.settings, Compute(CPU, 1))
        chosen = device_for(None, device, lambda behavior=behavior: behavior)
        figures = {"CPU ms": 1e3 * update_s(behavior.learner, size, CPU)}
        if device == CPU:
            yield Finding(size.name, True, figures, "no other device to compare with")
            continue
        there = Behavior("Behavior", size.spec, size.settings, Compute(device, 1))
        with Utilisation() as busy:
            figures["ms"] = 1e3 * update_s(there.learner, size, device)
        figures |= busy.figures()
        faster = device if figures["ms"] < figures["CPU ms"] else CPU
        taken = figures["ms"] if chosen == device else figures["CPU ms"]
        note = f"auto: {chosen.type}, faster: {faster.type}"
        # An update is not all: the CPU acts sooner, so that it may take a little longer here.
        good = taken <= CLOSE * min(figures["ms"], figures["CPU ms"])
        yield Finding(size.name, good, figures, f"{note}; {busy.reason}".strip("; "))


def measure_transfers(device: torch.device) -> Iterator[Finding]:
    """Gigabytes per second to the device, of pageable and of pinned memory, and the time of one number back."""
    if device == CPU:
        yield Finding("transfers", None, note="the CPU's memory is the device's")
        return
    pictures = torch.zeros((256, 4, 84, 84))
    size_gb = pictures.nbytes / 1e9
    number = torch.zeros((), device=device)
    pinned = pictures.pin_memory()
    figures = {
        "pageable GB/s": size_gb / seconds_of(lambda: pictures.to(device), device),
        "pinned GB/s": size_gb / seconds_of(lambda: pinned.to(device, non_blocking=True), device),
        "a number back, us": 1e6 * seconds_of(number.item, device),
        "an empty launch, us": 1e6 * seconds_of(lambda: number.add_(1.0), device),
    }
    yield Finding("transfers", True, figures)


def measure_bfloat16(device: torch.device) -> Iterator[Finding]:
    """How much faster forward and backward passes are in bfloat16."""
    pictures, rows = torch.rand((256, 4, 84, 84), device=device), torch.rand((4096, 1024), device=device)
    sensor = _sees_pictures(4).observation_specs[0]
    for encoder in ("nature_cnn", "resnet"):
        network = picture_encoder(sensor, encoder, 512).to(device)

        def encode(precision: Precision, network: nn.Module = network) -> Tensor:
            return encode_pictures(network, pictures, precision)

        yield _compared(f"pictures, {encoder}", encode, device)
    wide = wide_mlp().to(device)
    yield _compared("3 x 1,024 units", lambda precision: encode_pictures(wide, rows, precision), device)


def measure_graphs(device: torch.device) -> Iterator[Finding]:
    """How much faster gradient steps of ``FlatOptimizer`` are as one CUDA graph."""
    rows = torch.rand((256, 1024), device=device)
    pictures = torch.rand((256, 4, 84, 84), device=device)
    encoder = picture_encoder(_sees_pictures(4).observation_specs[0], "nature_cnn", 512)
    networks = (("3 x 1,024 units", wide_mlp(), rows), ("pictures, nature_cnn", encoder, pictures))
    for name, network, inputs in networks:
        network.to(device)
        optimizer = FlatOptimizer(network.parameters())

        def step(
            network: nn.Module = network, inputs: Tensor = inputs, optimizer: FlatOptimizer = optimizer
        ) -> None:
            optimizer.minimize(network(inputs).square().mean(), 3e-4, 0.5)

        eager = seconds_of(step, device)
        if device.type != "cuda":
            yield Finding(name, None, {"eager us": 1e6 * eager}, "graphs are CUDA's")
            continue
        graphed = seconds_of(captured(step).replay, device)
        yield Finding(
            name, True, {"eager us": 1e6 * eager, "graph us": 1e6 * graphed, "gain": eager / graphed}
        )


def check_ranks(device: torch.device) -> Iterator[Finding]:
    """Whether one learner rank sums on the device, by NCCL on a GPU, and learns."""
    settings = _settings("ppo", hidden_units=64, num_layers=2)
    with start_ranks(1, device) as ranks:
        total = ranks.group.add_up(torch.full((1024,), 3.0, device=device))
        took = seconds_of(lambda: ranks.group.add_up(total), device)
        learner = ranks.make("Behavior", NUMBERS, settings, Compute(device, 1))
        learner.record(experience(NUMBERS, settings))
        learner.update(0)
        kind = "nccl" if device.type == "cuda" else "gloo"
        yield Finding(f"one rank, {kind}", bool((total == 3.0).all()), {"a sum, us": 1e6 * took})


def update_s(learner: Learner, size: Size, device: torch.device) -> float:
    """Seconds of an update, median of a few: four gradient steps of PPO, 64 of SAC."""
    given = experience(size.spec, size.settings)
    taken = []
    for _ in range(1 + REPETITIONS):
        learner.record(given)
        while not learner.ready():
            learner.record(given)
        _synchronize(device)
        began = time.perf_counter()
        learner.update(0)
        _synchronize(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def seconds_of(call: Callable[[], object], device: torch.device, repetitions: int = 20) -> float:
    """Seconds of a call, when many follow each other and the device has done all of them."""
    for _ in range(3):
        call()
    _synchronize(device)
    began = time.perf_counter()
    for _ in range(repetitions):
        call()
    _synchronize(device)
    return (time.perf_counter() - began) / repetitions


def captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A step as a graph. It must have been run before, so that all it needs is allocated."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def experience(spec: BehaviorSpec, settings: TrainerSettings) -> Trajectories:
    """Steps of noise, HORIZON to a trajectory."""
    rng, segments, actions = np.random.default_rng(1), STEPS // HORIZON, spec.action_spec
    network = settings.network_settings.memory
    memory = 0 if network is None else 2 * network.memory_size  # the actor's and the critic's

    def seen(rows: int) -> tuple[np.ndarray[Any, Any], ...]:
        return tuple(rng.random((rows, *sensor.shape), dtype=np.float32) for sensor in spec.observation_specs)

    return Trajectories(
        observations=seen(STEPS),
        continuous_actions=rng.normal(size=(STEPS, actions.continuous_size)).astype(np.float32),
        discrete_actions=np.zeros((STEPS, actions.discrete_size), np.int64),
        allowed_actions=np.ones((STEPS, actions.mask_size), np.bool_),
        log_probs=np.full(STEPS, -2.0, np.float32),
        memories=np.zeros((STEPS, memory), np.float32),
        rewards=rng.normal(size=STEPS).astype(np.float32),
        group_rewards=np.zeros(STEPS, np.float32),
        lengths=np.full(segments, HORIZON),
        final_observations=seen(segments),
        final_allowed_actions=np.ones((segments, actions.mask_size), np.bool_),
        final_memories=np.zeros((segments, memory), np.float32),
        terminated=np.zeros(segments, np.bool_),
    )


def wide_mlp() -> nn.Module:
    """Three layers of 1,024 units."""
    return nn.Sequential(
        *(layer for _ in range(3) for layer in (nn.Linear(1024, 1024), nn.SiLU())), nn.Linear(1024, 4)
    )


class Utilisation:
    """A context that looks how busy the GPU is, as ``nvidia-smi`` has it."""

    def __init__(self) -> None:
        self.reason = ""
        self._seen: list[int] = []
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def figures(self) -> dict[str, float]:
        """The mean share of the time in per cent; nothing where it cannot be had."""
        return {"busy %": statistics.mean(self._seen)} if self._seen else {}

    def _look(self) -> None:
        while not self._over.wait(0.1):
            try:
                self._seen.append(torch.cuda.utilization())
            except Exception as error:  # without pynvml, or without the right to ask
                self.reason = f"utilisation unknown: {type(error).__name__}"
                return

    def __enter__(self) -> Utilisation:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()


def _compared(name: str, forward: Callable[[Precision], Tensor], device: torch.device) -> Finding:
    single, half = (
        seconds_of(lambda precision=precision: forward(precision).square().mean().backward(), device, 5)
        for precision in ("float32", "bfloat16")
    )
    figures = {"float32 ms": 1e3 * single, "bfloat16 ms": 1e3 * half, "gain": single / half}
    return Finding(name, True, figures)


def _sees_pictures(channels: int) -> BehaviorSpec:
    return BehaviorSpec((ObservationSpec("picture", (channels, 84, 84), PICTURE),), ActionSpec(0, (4,)))


def _settings(trainer_type: str, **network: Any) -> TrainerSettings:
    rollout = {"batch_size": 256, "buffer_size": STEPS, "num_epoch": 1}
    replay = {"batch_size": 256, "buffer_size": 8 * STEPS, "buffer_init_steps": STEPS, "steps_per_update": 16}
    return TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": rollout if trainer_type == "ppo" else replay,
            "network_settings": network,
            "time_horizon": HORIZON,
        }
    )


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
