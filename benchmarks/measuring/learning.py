"""The cost of learning with 3DBall's shapes: by plain torch, and by the trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from measuring.scenes import SCENES
from measuring.timing import median_us
from trainer_service.config import load_run_options
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.algorithms.common.learner import Learner
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

OBSERVATIONS, ACTIONS, HIDDEN = 8, 2, 128
EPOCHS, BATCH_SIZE, BUFFER_SIZE = 3, 64, 12_000
MINIBATCHES = EPOCHS * -(-BUFFER_SIZE // BATCH_SIZE)
"""Gradient steps of one update."""


def plain_forward_us(agents: int, repetitions: int) -> float:
    """Normalize, actor, draw, log-probability; median microseconds."""
    actor, log_sigma = _network(ACTIONS), torch.zeros(ACTIONS)
    observations, shift, scale = (
        torch.randn(agents, OBSERVATIONS),
        torch.zeros(OBSERVATIONS),
        torch.ones(OBSERVATIONS),
    )

    def act() -> None:
        with torch.inference_mode():
            mean = actor(((observations - shift) * scale).clamp(-5, 5))
            noise = torch.randn_like(mean)
            (mean + noise * log_sigma.exp()).numpy()
            (-0.5 * noise * noise - log_sigma).sum(-1).numpy()

    return median_us(act, repetitions)


def our_forward_us(agents: int, repetitions: int) -> float:
    """The same through our algorithm; median microseconds."""
    algorithm = _algorithm()
    observations = np.random.default_rng(1).normal(size=(agents, OBSERVATIONS)).astype(np.float32)
    allowed, memories = np.ones((agents, 0), np.bool_), np.zeros((agents, 0), np.float32)
    return median_us(lambda: algorithm.actor.act(ActRequest([observations], allowed, memories)), repetitions)


def plain_minibatch_us(rows: int, repetitions: int) -> float:
    """Forward, PPO's loss, backward by autograd, fused Adam; actor and critic apart; median microseconds."""
    actor, critic, log_sigma = _network(ACTIONS), _network(1), nn.Parameter(torch.zeros(ACTIONS))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_sigma], lr=3e-4, fused=True)
    observations, actions = torch.randn(rows, OBSERVATIONS), torch.randn(rows, ACTIONS)
    old_log_prob, advantage, old_value, return_ = (torch.randn(rows) for _ in range(4))

    def step() -> None:
        value = critic(observations).squeeze(-1)
        log_prob = _log_prob(actions, actor(observations), log_sigma)
        ratio = torch.exp((log_prob - old_log_prob).clamp(-1, 1))
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        clipped = old_value + (value - old_value).clamp(-0.2, 0.2)
        value_loss = torch.maximum((value - return_) ** 2, (clipped - return_) ** 2).mean()
        optimizer.zero_grad()
        torch.autograd.backward(0.5 * value_loss - surrogate - 1e-3 * log_sigma.mean())
        optimizer.step()

    return median_us(step, repetitions)


def our_update_s(
    repetitions: int,
    batch_size: int = BATCH_SIZE,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """One update of 12000 rows with 3DBall's settings, or with larger minibatches; median seconds.

    clock: ``time.process_time`` is that of a quiet machine, whatever else runs, as long as torch has one thread.
    """
    algorithm = _algorithm(batch_size)
    taken = []
    for _ in range(repetitions + 1):
        algorithm.record(_rollout())
        started = clock()
        algorithm.update(0)
        taken.append(clock() - started)
    return median(taken[1:])


def our_acting_state() -> Mapping[str, Any]:
    """The parts of the algorithm that ``our_update_s`` measures on which acting depends."""
    return _algorithm().actor.state_dict()


def _network(outputs: int) -> nn.Sequential:
    layers = (nn.Linear(OBSERVATIONS, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU())
    return nn.Sequential(*layers, nn.Linear(HIDDEN, outputs))


def _log_prob(actions: Tensor, mean: Tensor, log_sigma: Tensor) -> Tensor:
    return (-0.5 * ((actions - mean) * torch.exp(-log_sigma)) ** 2 - log_sigma - 0.9189).sum(-1)


def _algorithm(batch_size: int = BATCH_SIZE) -> Learner:
    larger = {"behaviors": {"3DBall": {"hyperparameters": {"batch_size": batch_size}}}}
    settings = load_run_options(SCENES["3dball"].config, larger).options.behavior_settings("3DBall")
    spec = BehaviorSpec((ObservationSpec("vector", (OBSERVATIONS,)),), ActionSpec(ACTIONS))
    return ALGORITHMS[settings.trainer_type](spec, settings, Compute(torch.device("cpu"), 1))


def _rollout() -> Trajectories:
    """12 agents, 1000 steps each, of noise: it costs what experience costs."""
    rng = np.random.default_rng(1)

    def noise(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.normal(size=shape).astype(np.float32)

    segments = 12
    return Trajectories(
        observations=(noise(BUFFER_SIZE, OBSERVATIONS),),
        continuous_actions=noise(BUFFER_SIZE, ACTIONS),
        discrete_actions=np.empty((BUFFER_SIZE, 0), np.int64),
        allowed_actions=np.empty((BUFFER_SIZE, 0), np.bool_),
        log_probs=noise(BUFFER_SIZE) - 3.0,
        memories=np.zeros((BUFFER_SIZE, 0), np.float32),
        rewards=noise(BUFFER_SIZE),
        group_rewards=np.zeros(BUFFER_SIZE, np.float32),
        lengths=np.full(segments, BUFFER_SIZE // segments),
        final_observations=(noise(segments, OBSERVATIONS),),
        final_allowed_actions=np.empty((segments, 0), np.bool_),
        final_memories=np.zeros((segments, 0), np.float32),
        terminated=np.zeros(segments, np.bool_),
    )
