"""A comparison of the compiled kernel with torch before its use, so that a faulty build only costs time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.learning.kernels.compiled.library import CompiledLibrary, UnavailableError, load
from trainer_service.learning.kernels.compiled.ppo import CompiledPPO
from trainer_service.learning.kernels.mlp_layout import layout_of
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.random_streams import seeded
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps, ppo_loss
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

_TOLERANCE = 1e-4
"""Tolerance of the gradient's error, relative to its largest number. A correct build is at 3e-7."""

_ROWS, _REPETITIONS = 70, 5
_SPEC = BehaviorSpec((ObservationSpec("numbers", (6,)),), ActionSpec(2, (3, 2)))
_NETWORKS = {
    "": NetworkSettings(hidden_units=72, num_layers=2),
    " of an LSTM": NetworkSettings(hidden_units=72, num_layers=1, memory=MemorySettings(memory_size=48)),
}
_LENGTHS = (20, 1, 20, 12, 17)
"""Lengths of the sequences in these rows, for networks with memory."""

_STEPS = PPOSteps(
    learning_rate=3e-4,
    clip_epsilon=0.2,
    value_clip_range=torch.tensor([0.3], dtype=torch.float32, device="cpu"),
    value_coefficient=0.5,
    entropy_coefficient=0.01,
    max_grad_norm=None,
)

_logger = logging.getLogger(__name__)


@cache
def checked_library() -> CompiledLibrary:
    """Returns the fastest library that agrees with torch and needs less time. Takes milliseconds the first time.

    Raises UnavailableError if there is none.
    """
    for library in reversed(list(load().values())):
        fault = fault_of(library)
        if fault is None:
            return library
        _logger.warning("The compiled kernel for %s is not used: %s", library.name, fault)
    raise UnavailableError("what was built is not fit for use")


def fault_of(library: CompiledLibrary) -> str | None:
    """Checks a library on small networks. Returns its fault, or None."""
    faults = (_fault_with(library, settings, kind) for kind, settings in _NETWORKS.items())
    return next((fault for fault in faults if fault is not None), None)


@torch.enable_grad()
def _fault_with(library: CompiledLibrary, settings: NetworkSettings, kind: str) -> str | None:
    """Checks a library on one network. Returns its fault, or None. kind: the network, named after the word gradient."""
    with seeded(0):
        network = ActorCritic(_SPEC, settings, value_heads=1, shared_critic=False)
        optimizer = FlatOptimizer(network.parameters())
        observations, batch = torch.randn(_ROWS, _SPEC.observation_specs[0].size), _batch()
        sequences = _sequences(network.memory_size)
    layout = layout_of(network, optimizer.parameters)
    if layout is None:
        raise RuntimeError("an MLP policy has no layout")
    kernel, order = CompiledPPO(library, layout, optimizer), torch.arange(_ROWS)
    gradient = optimizer.parameters.gradient

    def run_torch() -> None:
        optimizer.parameters.gradient.zero_()
        loss = _loss(network, observations, batch, sequences)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here

    def run_library() -> None:
        kernel.gradient([observations], batch, order, _STEPS, sequences)

    run_torch()
    expected = gradient.clone()
    run_library()
    error = float((gradient - expected).abs().max() / expected.abs().max())
    if not error < _TOLERANCE:
        return f"its gradient{kind} is wrong, by {error:.1g} of the largest number"
    theirs, ours = _seconds(run_torch), _seconds(run_library)
    if ours > theirs:
        return f"a gradient{kind} takes {ours * 1e6:.0f} µs, in torch {theirs * 1e6:.0f}"
    return None


def _batch() -> PPOBatch:
    first, second = torch.randint(0, 3, (_ROWS,)), torch.randint(3, 5, (_ROWS,))
    chosen = torch.stack([first, second], dim=1)
    allowed = (torch.rand(_ROWS, 5) < 0.7).scatter(1, chosen, True)
    old_value = torch.randn(_ROWS, 1)
    return PPOBatch(
        continuous_actions=torch.randn(_ROWS, 2),
        discrete_actions=chosen,
        allowed_actions=allowed,
        old_log_prob=torch.randn(_ROWS) * 0.3 - 4.0,
        advantage=torch.randn(_ROWS),
        old_value=old_value,
        return_=old_value + torch.randn(_ROWS, 1),
    )


def _sequences(memory_size: int) -> Sequences | None:
    if not memory_size:
        return None
    filled = torch.arange(max(_LENGTHS)) < torch.tensor(_LENGTHS)[:, None]
    return Sequences(torch.randn(len(_LENGTHS), memory_size), filled)


def _loss(network: ActorCritic, observations: Tensor, batch: PPOBatch, sequences: Sequences | None) -> Tensor:
    parameters, values = network.policy_and_values([observations], sequences)
    return ppo_loss(*parameters[:3], values, batch, _STEPS, network.actions.branches)[0]


def _seconds(work: Callable[[], object]) -> float:
    """Returns the CPU seconds of the fastest of several repetitions, which other load affects least."""
    taken = []
    for _ in range(_REPETITIONS):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)
