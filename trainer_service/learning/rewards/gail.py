"""Generative adversarial imitation, Ho & Ermon 2016 (arXiv:1606.03476), with ML-Agents' settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config.rewards import GAILSettings
from trainer_service.learning.imitation import DemonstratedSteps, DemonstrationStore
from trainer_service.learning.networks.encoders.layers import in_chunks
from trainer_service.learning.networks.random_streams import random_stream, restore_streams
from trainer_service.learning.networks.shard import SINGLE_RANK, Part, Shard
from trainer_service.learning.rewards.discriminator import Discriminator, Inputs
from trainer_service.learning.rewards.reward_model import RewardModel
from trainer_service.learning.rewards.transitions import Experience, Transitions
from trainer_service.ops.imitation import (
    bottleneck_divergence,
    discriminator_loss,
    gradient_penalty,
    imitation_reward,
    on_the_line,
)
from unity_bridge.specs import BehaviorSpec

_PENALTY_WEIGHT = 10.0
_MOST_INFORMATION = 0.5
_BETA_RATE = 5e-4


class GAILReward(RewardModel):
    """Rewards steps that the discriminator classifies as demonstrated, and trains the discriminator.

    Rewards are never negative, so longer episodes earn more. If the goal is to end the episode, and no other reward
    signal says so, an agent may learn to delay the end. With ``use_actions`` the discriminator also observes
    terminations. Values are not bootstrapped past a termination.
    """

    name = "gail"
    ignores_end = False
    _network: Discriminator

    def __init__(
        self, spec: BehaviorSpec, settings: GAILSettings, device: torch.device, shard: Shard = SINGLE_RANK
    ) -> None:
        """Raises ValueError if the signal's network does not support a sensor."""
        self.demonstrations = DemonstrationStore(settings.demo_path, spec)
        self._normalizes = settings.network_settings.normalize
        super().__init__(spec, settings, Discriminator(spec, settings), device, shard)
        # A separate random stream, seeded by the global generator that initializes the networks.
        self._drawing = random_stream(int(torch.randint(2**62, ())))
        self._beta = torch.zeros((), device=device)
        """Weight β of the bottleneck's divergence. It rises while the codes carry too much information."""

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Updates the normalizer, then returns the rewards of new steps. Shape [S]."""
        self.update_statistics(experience)
        parts = [self.rewards(experience.take(chunk)) for chunk in in_chunks(len(experience), self._chunk)]
        return torch.cat(parts).cpu().numpy() if parts else np.zeros(0, np.float32)

    def update_statistics(self, experience: Experience) -> None:
        """Updates the normalizer with new steps."""
        if self._normalizes and len(experience):
            # As many demonstrated steps as the policy's, so that the statistics cover both equally.
            for observations in (
                self._tensors(experience.trajectories.observations),
                self._drawn(Part(slice(None), len(experience))).observations,
            ):
                self._normalizer.update(observations)

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns the current rewards of steps. Shape [B]."""
        with torch.no_grad():
            inputs = self._inputs(transitions)
            return imitation_reward(self._network.logits(self._network.codes(inputs)))

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """Makes one step of Adam on policy steps and as many demonstrated steps; none if there are no steps."""
        if len(transitions) == 0:
            return {}
        part = Part(slice(None), len(transitions)) if part is None else part
        policy, expert = self._inputs(transitions), self._inputs(self._drawn(part))
        loss, statistics = self._loss(expert, policy, part)
        return self._minimize(loss, statistics, part.share)

    def _loss(self, expert: Inputs, policy: Inputs, part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        network = self._network
        rows = len(expert.actions)
        codes = network.codes(_both(expert, policy))
        expert_codes, policy_codes = codes[:rows], codes[rows:]
        if network.bottleneck is not None:
            codes = network.bottleneck.noisy(codes, self._shard.normal(codes, part, self._drawing, times=2))
        logits = network.logits(codes)
        loss = discriminator_loss(logits[:rows], logits[rows:])
        penalty = _PENALTY_WEIGHT * self._penalty(expert, policy, part)
        estimates = torch.sigmoid(logits.detach())
        statistics = {
            "Losses/GAIL Loss": loss,
            "Policy/GAIL Expert Estimate": estimates[:rows].mean(),
            "Policy/GAIL Policy Estimate": estimates[rows:].mean(),
            "Policy/GAIL Grad Mag Loss": penalty,
        }
        if network.bottleneck is None:
            return loss + penalty, statistics
        divergence = bottleneck_divergence(expert_codes, policy_codes, network.bottleneck.sigma)
        excess = divergence - _MOST_INFORMATION
        total = loss + penalty + self._beta * excess
        known = self._shard.add_up(self._shard.weighted(excess.detach(), part.share))
        self._beta = (self._beta + _BETA_RATE * known).clamp(min=0.0)
        return total, {**statistics, "Losses/GAIL KL Loss": divergence, "Policy/GAIL Beta": self._beta}

    def _penalty(self, expert: Inputs, policy: Inputs, part: Part) -> Tensor:
        """Returns the gradient penalty of D at random points between expert and policy steps."""
        share = torch.rand(part.count, generator=self._drawing)[part.rows].to(self._device)
        between = Inputs(
            [
                on_the_line(theirs, ours, share).requires_grad_()
                for theirs, ours in zip(expert.observations, policy.observations, strict=True)
            ],
            on_the_line(expert.actions, policy.actions, share).requires_grad_(),
        )
        estimates = torch.sigmoid(self._network.logits(self._network.codes(between)))
        gradients = torch.autograd.grad(
            estimates.sum(), [*between.observations, between.actions], create_graph=True
        )
        return gradient_penalty(gradients)

    def _inputs(self, steps: Transitions | DemonstratedSteps) -> Inputs:
        return self._network.inputs(self._seen(steps.observations), steps)

    def _drawn(self, part: Part) -> DemonstratedSteps:
        """Samples demonstrated steps with replacement: this rank's share of a minibatch."""
        demonstrations = self.demonstrations.read()
        rows = torch.randint(len(demonstrations), (part.count,), generator=self._drawing)
        return demonstrations.take(rows[part.rows], self._device)

    def state_dict(self) -> dict[str, Any]:
        """The whole state except the demonstrations."""
        return {**super().state_dict(), "beta": self._beta, "drawing": self._drawing.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError, RuntimeError or ValueError if it does not fit."""
        super().load_state_dict(state)
        restore_streams({"drawing": self._drawing}, state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads networks and statistics, without the optimizer's moments and the random stream."""
        super().load_weights(state)
        self._beta = state["beta"].to(self._device)


def _both(expert: Inputs, policy: Inputs) -> Inputs:
    """Concatenates two batches, the expert's steps first."""
    pairs: Sequence[tuple[Tensor, Tensor]] = list(zip(expert.observations, policy.observations, strict=True))
    return Inputs([torch.cat(pair) for pair in pairs], torch.cat([expert.actions, policy.actions]))
