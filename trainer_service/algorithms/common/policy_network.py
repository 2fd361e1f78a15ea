"""What decides, apart from how it learns: the part of an algorithm that a model file holds."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.groups.group_actor_critic import GroupActors
from trainer_service.networks.policies.action_heads import ActionParameters, executed
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.networks.policies.deterministic_actor import DeterministicActor
from trainer_service.networks.policies.group_actors import TeamActors
from trainer_service.networks.policies.q_network import GreedyNetwork
from trainer_service.networks.policies.soft_actor import SoftActor
from trainer_service.networks.policies.uniform import UniformNetwork

ActorNetwork = (
    ActorCritic | SoftActor | TeamActors | DeterministicActor | GroupActors | GreedyNetwork | UniformNetwork
)


class PolicyNetwork(nn.Module):
    """From raw observations to the parameters of the actions, and from an action to what a simulator gets.

    A copy on the CPU, ready to be traced: whoever holds it cannot disturb the training that it was taken
    from. An algorithm whose actions are bounded in another way overrides ``squash``, one that draws them in another
    way ``numbers`` and ``choices``.
    """

    def __init__(self, normalizer: ObservationNormalizer, network: ActorNetwork) -> None:
        super().__init__()
        self.normalizer = copy.deepcopy(normalizer).cpu()
        self.network = copy.deepcopy(network).cpu()
        self.memory_size = _memory_of(network)
        """Floats that the policy carries from one decision to the next; 0 without memory."""
        self.input_sensors: Sequence[int] | None = None
        """Which of the observations it looks at, in order; None for all of them."""

    def forward(self, observations: Sequence[Tensor]) -> ActionParameters:
        """observations: float32 as the simulator sent them, one [B, *sensor shape] per sensor."""
        return self.network.policy(self.seen(observations))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """The same with memory: also takes and gives what is remembered, [B, memory_size]."""
        return self.network.step(self.seen(observations), memories)

    def seen(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """What the network gets of the observations: those that it looks at, normalized."""
        chosen = observations if self.input_sensors is None else [observations[i] for i in self.input_sensors]
        return self.normalizer.forward(chosen)

    def squash(self, continuous: Tensor) -> Tensor:
        """Continuous actions as they go over the wire: clip(a, −3, 3)/3. Shape kept."""
        return executed(continuous)

    def numbers(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """For a model: continuous actions as they go over the wire, drawn, and likeliest. Shapes [B, C]."""
        mean = parameters.mean
        drawn = mean + torch.randn_like(mean) * parameters.log_sigma.exp()
        return self.squash(drawn), self.squash(mean)

    def choices(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """For a model: choices of one branch, drawn, and likeliest. logits: masked, [B, K]. Returns int64 [B, 1]."""
        probabilities = torch.softmax(logits, dim=-1)
        return torch.multinomial(probabilities, 1), probabilities.argmax(dim=-1, keepdim=True)


class SquashedPolicyNetwork(PolicyNetwork):
    """Actions are tanh of a Gaussian: the deterministic one too."""

    def squash(self, continuous: Tensor) -> Tensor:
        """Shape kept."""
        # An inference engine may approximate tanh, and by a last digit go past what a simulator takes.
        return torch.tanh(continuous).clamp(-1.0, 1.0)


class GreedyPolicyNetwork(PolicyNetwork):
    """Logits are action values, and the best is chosen: a model draws nothing either."""

    def __init__(self, normalizer: ObservationNormalizer, network: GreedyNetwork) -> None:
        super().__init__(normalizer, network)

    def choices(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the best."""
        best = logits.argmax(dim=-1, keepdim=True)
        return best, best


class UniformPolicyNetwork(PolicyNetwork):
    """No action is likelier than another, so what is called likeliest is drawn too."""

    def squash(self, continuous: Tensor) -> Tensor:
        """They lie in [−1, 1] already."""
        return continuous

    def numbers(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """Twice the same draw."""
        drawn = torch.rand_like(parameters.mean) * 2.0 - 1.0
        return drawn, drawn

    def choices(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the same draw: forbidden choices have no probability, all others the same."""
        drawn, _ = super().choices(logits)
        return drawn, drawn


def _memory_of(network: ActorNetwork) -> int:
    if isinstance(network, GroupActors | GreedyNetwork | UniformNetwork):
        return network.memory_size
    return network.actor.memory_size
