"""The acting part of an algorithm, without its learning: the contents of a model file."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.learning.networks.encoders.encoder import ObservationEncoder
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.policies.action_heads import ActionParameters, clip_actions
from trainer_service.learning.networks.policies.action_network import ActionNetwork
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.policies.group_actors import GroupActors
from trainer_service.learning.networks.policies.soft_actor import SoftActor
from trainer_service.learning.networks.policies.uniform import UniformNetwork

PolicyModule = ActorCritic | SoftActor | GroupActors | ActionNetwork | UniformNetwork
"""The module of a policy, as a model file holds it."""


class PolicyNetwork(nn.Module):
    """A network from raw observations to action parameters, and from actions to the simulator's actions.

    It is a copy on the CPU in single precision, ready to be traced, and using it does not affect training. An
    algorithm with other bounds of actions overrides ``squash``. An algorithm with other sampling overrides
    ``continuous_actions`` and ``discrete_actions``.
    """

    def __init__(self, normalizer: ObservationNormalizer, network: PolicyModule) -> None:
        super().__init__()
        self.normalizer = copy.deepcopy(normalizer).cpu()
        self.network = copy.deepcopy(network).cpu()
        for module in self.network.modules():
            if isinstance(module, ObservationEncoder):
                module.precision = "float32"
        self.memory_size = network.policy_memory_size
        """Floats of the policy's memory between decisions; 0 without memory."""
        self.input_sensors: Sequence[int] | None = None
        """Numbers of the observations that it uses, in order; None for all."""

    def forward(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Computes action parameters. observations: float32 from the simulator, one [B, *sensor shape] per sensor."""
        return self.network.policy(self.inputs(observations))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """One step with memory, [B, memory_size]: returns parameters of the actions, and the next memories."""
        return self.network.step(self.inputs(observations), memories)

    def inputs(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Returns the normalized observations that the network uses."""
        chosen = observations if self.input_sensors is None else [observations[i] for i in self.input_sensors]
        return self.normalizer.forward(chosen)

    def squash(self, continuous: Tensor) -> Tensor:
        """Continuous actions for the simulator: clip(a, −3, 3)/3. Shape kept."""
        return clip_actions(continuous)

    def continuous_actions(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """Continuous actions of a model for the simulator: sampled, and likeliest. Shapes [B, C]."""
        mean = parameters.mean
        drawn = mean + torch.randn_like(mean) * parameters.log_sigma.exp()
        return self.squash(drawn), self.squash(mean)

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choices of a model in one branch: sampled, and likeliest. logits: masked, [B, K]. Returns int64 [B, 1]."""
        probabilities = torch.softmax(logits, dim=-1)
        return torch.multinomial(probabilities, 1), probabilities.argmax(dim=-1, keepdim=True)


class SquashedPolicyNetwork(PolicyNetwork):
    """A policy whose actions are tanh of a Gaussian, or of a deterministic output."""

    def squash(self, continuous: Tensor) -> Tensor:
        """Continuous actions for the simulator: tanh(a). Shape kept."""
        # An inference engine may approximate tanh, and slightly exceed the simulator's bounds.
        return torch.tanh(continuous).clamp(-1.0, 1.0)


class GreedyPolicyNetwork(PolicyNetwork):
    """A policy whose logits are action values, and whose action is the best one. Its models sample nothing."""

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the best choice, twice."""
        best = logits.argmax(dim=-1, keepdim=True)
        return best, best


class UniformPolicyNetwork(PolicyNetwork):
    """A policy in which all actions are equally likely, so that its likeliest action is sampled too."""

    def squash(self, continuous: Tensor) -> Tensor:
        """Returns continuous actions unchanged, since they are in [−1, 1]."""
        return continuous

    def continuous_actions(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """Returns one sample, twice."""
        drawn = torch.rand_like(parameters.mean) * 2.0 - 1.0
        return drawn, drawn

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Returns one sample, twice. Forbidden choices have probability 0, all others are equally likely."""
        drawn, _ = super().discrete_actions(logits)
        return drawn, drawn
