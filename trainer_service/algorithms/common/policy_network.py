"""The acting part of an algorithm, apart from how it learns: what a model file holds."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.networks.encoders.encoder import ObservationEncoder
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.groups.stacked_actor_critic import DecentralizedActors
from trainer_service.networks.policies.action_heads import ActionParameters, clip_actions
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.networks.policies.deterministic_actor import DeterministicActor
from trainer_service.networks.policies.group_actors import GroupActors
from trainer_service.networks.policies.q_network import GreedyNetwork
from trainer_service.networks.policies.soft_actor import SoftActor
from trainer_service.networks.policies.uniform import UniformNetwork

ActorNetwork = (
    ActorCritic
    | SoftActor
    | GroupActors
    | DeterministicActor
    | DecentralizedActors
    | GreedyNetwork
    | UniformNetwork
)


class PolicyNetwork(nn.Module):
    """A network from raw observations to the parameters of actions, and from an action to what a simulator gets.

    A copy on the CPU in single precision, ready to be traced: nothing that is done with it disturbs the training that
    it was taken from. An algorithm whose actions are bounded in another way overrides ``squash``, one that draws them
    in another way ``continuous_actions`` and ``discrete_actions``.
    """

    def __init__(self, normalizer: ObservationNormalizer, network: ActorNetwork) -> None:
        super().__init__()
        self.normalizer = copy.deepcopy(normalizer).cpu()
        self.network = copy.deepcopy(network).cpu()
        for module in self.network.modules():
            if isinstance(module, ObservationEncoder):
                module.precision = "float32"
        self.memory_size = network.policy_memory_size
        """Floats that the policy carries from one decision to the next; 0 without memory."""
        self.input_sensors: Sequence[int] | None = None
        """Which of the observations it looks at, in order; None for all of them."""

    def forward(self, observations: Sequence[Tensor]) -> ActionParameters:
        """observations: float32 as the simulator sent them, one [B, *sensor shape] per sensor."""
        return self.network.policy(self.inputs(observations))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """One step with memory, [B, memory_size]: parameters of the actions, and what is remembered next."""
        return self.network.step(self.inputs(observations), memories)

    def inputs(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """The observations that the network looks at, normalized."""
        chosen = observations if self.input_sensors is None else [observations[i] for i in self.input_sensors]
        return self.normalizer.forward(chosen)

    def squash(self, continuous: Tensor) -> Tensor:
        """Continuous actions as they go over the wire: clip(a, −3, 3)/3. Shape kept."""
        return clip_actions(continuous)

    def continuous_actions(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """Continuous actions of a model as they go over the wire: drawn, and likeliest. Shapes [B, C]."""
        mean = parameters.mean
        drawn = mean + torch.randn_like(mean) * parameters.log_sigma.exp()
        return self.squash(drawn), self.squash(mean)

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choices of a model in one branch: drawn, and likeliest. logits: masked, [B, K]. Returns int64 [B, 1]."""
        probabilities = torch.softmax(logits, dim=-1)
        return torch.multinomial(probabilities, 1), probabilities.argmax(dim=-1, keepdim=True)


class SquashedPolicyNetwork(PolicyNetwork):
    """A policy whose actions are tanh of a Gaussian: the deterministic one too."""

    def squash(self, continuous: Tensor) -> Tensor:
        """Continuous actions as they go over the wire: tanh(a). Shape kept."""
        # An inference engine may approximate tanh, and by a last digit go past what a simulator takes.
        return torch.tanh(continuous).clamp(-1.0, 1.0)


class GreedyPolicyNetwork(PolicyNetwork):
    """A policy whose logits are action values, the best of which is chosen: its models draw nothing either."""

    def __init__(self, normalizer: ObservationNormalizer, network: GreedyNetwork) -> None:
        super().__init__(normalizer, network)

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The best choice, twice."""
        best = logits.argmax(dim=-1, keepdim=True)
        return best, best


class UniformPolicyNetwork(PolicyNetwork):
    """A policy for which no action is likelier than another, so what is called likeliest is drawn too."""

    def squash(self, continuous: Tensor) -> Tensor:
        """Continuous actions as they are: they lie in [−1, 1] already."""
        return continuous

    def continuous_actions(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """One draw, twice."""
        drawn = torch.rand_like(parameters.mean) * 2.0 - 1.0
        return drawn, drawn

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """One draw, twice: forbidden choices have no probability, all others the same."""
        drawn, _ = super().discrete_actions(logits)
        return drawn, drawn
