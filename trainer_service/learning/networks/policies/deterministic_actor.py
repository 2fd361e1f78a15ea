"""Deterministic actors μ(o) and critics Q(o, a). B agents, C continuous actions, K choices in all branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder, Trunk, body_for
from trainer_service.learning.networks.encoders.layers import (
    kaiming_linear,
    make_body,
    observations_as_floats,
    xavier_linear,
)
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.action_heads import ActionParameters, in_every_row
from trainer_service.learning.networks.policies.action_network import ActionNetwork
from trainer_service.ops import distributions as dist
from unity_bridge.specs import ActionSpec, BehaviorSpec

_NO_SPREAD = -20.0
"""ln σ of deterministic actions, so small that rounding removes σ."""


class RememberingCritics(Protocol):
    """Critics with optional memory."""

    memory_size: int

    def remember(self, observations: Sequence[Tensor], memories: Tensor) -> Tensor: ...


class RecurrentActor(Protocol):
    """An actor with optional memory."""

    memory_size: int
    actions: Any

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters: ...

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]: ...


class DirectActions(nn.Module):
    """Actions from a network's outputs: continuous actions by tanh, discrete actions by logits."""

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.continuous_size = spec.continuous_size
        self.branches: Sequence[int] = spec.discrete_branches
        self.size = spec.continuous_size + spec.mask_size

    def forward(self, outputs: Tensor) -> ActionParameters:
        """Maps [..., C + K] to parameters: means before tanh, and a negligible deviation."""
        # Slices instead of a split, since importers of models may not support parts of size 0.
        continuous, logits = outputs[..., : self.continuous_size], outputs[..., self.continuous_size :]
        return ActionParameters(continuous, in_every_row(_NO_SPREAD, continuous), logits)

    def most_likely(
        self, parameters: ActionParameters, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns continuous actions in [−1, 1], likeliest discrete ones int64 [B, branches], log-probabilities [B]."""
        return self._decided(parameters, self._log_choices(parameters, allowed), None)

    def sample(
        self, parameters: ActionParameters, allowed: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Samples discrete actions. Continuous actions are deterministic."""
        return self._decided(parameters, self._log_choices(parameters, allowed), generator)

    def squared_error(
        self, parameters: ActionParameters, target: Tensor, noise: Callable[[Tensor], Tensor]
    ) -> Tensor | None:
        """Squared errors of continuous actions. target: [B, C], in [−1, 1]. Returns [B, C], or None without any."""
        return (torch.tanh(parameters.mean) - target).square() if self.continuous_size else None

    def _log_choices(self, parameters: ActionParameters, allowed: Tensor | None) -> Tensor | None:
        return dist.masked_log_softmax(parameters.logits, allowed, self.branches) if self.branches else None

    def _decided(
        self, parameters: ActionParameters, log_choices: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        continuous, rows = torch.tanh(parameters.mean), len(parameters.mean)
        if log_choices is None:
            none = torch.empty((rows, 0), dtype=torch.int64, device=continuous.device)
            return continuous, none, continuous.new_zeros(rows)
        if generator is None:
            discrete = dist.greedy_categorical(log_choices, self.branches)
        else:
            discrete = dist.sample_categorical(log_choices, self.branches, generator)
        offsets = torch.tensor(dist.choice_offsets(self.branches), device=discrete.device)
        return continuous, discrete, dist.categorical_log_prob(log_choices, discrete + offsets)


class DeterministicActor(ActionNetwork):
    """The actor μ(o), for continuous actions."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings) -> None:
        """Raises ValueError if the networks of the settings do not support a sensor."""
        super().__init__(DirectActions(spec.action_spec))
        self.actor = Trunk(spec, settings)
        self.memory_size = self.policy_memory_size = self.actor.memory_size
        self.output = kaiming_linear(self.actor.output_size, self.actions.size, gain=0.2)

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements ActionNetwork: actions before tanh."""
        return self.output.forward(self.actor.encode(EncoderInput(observations)))

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements ActionNetwork. memories: the actor's part first."""
        features, next_memories = self.actor.step(observations_as_floats(observations), memories)
        return self.output.forward(features), next_memories

    def forward(self, inputs: EncoderInput) -> Tensor:
        """Returns the actions at the selected steps: [B, C] in [−1, 1]."""
        return torch.tanh(self.decide(self.actor.encode(inputs)).mean)

    def decide(self, features: Tensor) -> ActionParameters:
        """Returns parameters of agents' actions, before tanh, from the trunk's features."""
        return self.parameters_of(self.output.forward(features))


class ActionCritic(nn.Module):
    """The critic Q(o, a).

    With memory, a trunk processes the observations, and one more layer adds an action, as in SoftCritics. In an
    agent's memory, the critic's part follows the actor's.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings) -> None:
        super().__init__()
        done, memory = spec.action_spec.continuous_size, settings.memory
        self.encoder: ObservationEncoder | Trunk
        if memory is None:
            self.encoder = ObservationEncoder(spec.observation_specs, settings)
            self.body = body_for(self.encoder, self.encoder.output_size + done, settings)
        else:
            self.encoder = Trunk(spec, settings, memory_start=memory.memory_size)
            single = settings.model_copy(update={"num_layers": 1})
            self.body = make_body(self.encoder.output_size + done, single)
        self.memory_size = 0 if memory is None else memory.memory_size
        self.value = xavier_linear(settings.hidden_units, 1)

    def forward(self, inputs: EncoderInput, actions: Tensor) -> Tensor:
        """Maps normalized observations and actions [B, C] to [B]."""
        if isinstance(self.encoder, Trunk):
            encoded = self.encoder.encode(inputs)
        else:
            encoded = self.encoder.forward(observations_as_floats(inputs.observations))
        features = self.body.forward(torch.cat([encoded, actions], dim=-1))
        return self.value.forward(features).squeeze(-1)

    def remember(self, observations: Sequence[Tensor], memories: Tensor) -> Tensor:
        """Returns agents' next memories in the critic. memories: the present ones. [B, memory_size]"""
        if not isinstance(self.encoder, Trunk):
            return memories[:, :0]
        return self.encoder.step(observations_as_floats(observations), memories)[1]


class RememberingActor(nn.Module):
    """An actor with the memories of its critics, which get the same observations while it acts."""

    def __init__(self, actor: RecurrentActor, critics: RememberingCritics) -> None:
        super().__init__()
        self.actor, self.critics = actor, critics
        self.actions = actor.actions
        self.memory_size = actor.memory_size + critics.memory_size
        """Floats of an agent's memory: the actor's, then the critics'."""

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns each agent's action before tanh; without memory."""
        return self.actor.policy(observations)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns parameters of one step, and each agent's next memory.

        memories: [B, at least memory_size], or the actor's part only, if nothing is learned.
        """
        parameters, next_memories = self.actor.step(observations, memories)
        if memories.shape[1] > self.actor.memory_size:
            next_memories = torch.cat([next_memories, self.critics.remember(observations, memories)], dim=1)
        return parameters, next_memories
