"""Policy and critics of soft actor-critic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.off_policy import CriticNorm
from trainer_service.config.network import Activation, NetworkSettings
from trainer_service.learning.networks.critics.normalization import BatchNorms
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder, Trunk
from trainer_service.learning.networks.encoders.goals import ConditionalBody
from trainer_service.learning.networks.encoders.layers import (
    hidden_linear,
    kaiming_linear,
    observations_as_floats,
    xavier_linear,
)
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.products import activated, is_faster, linear
from trainer_service.ops import distributions as dist
from trainer_service.ops.soft_actor_critic import Drawn, tanh_correction
from unity_bridge.specs import ActionSpec, BehaviorSpec

CRITICS = 2
"""Number of critics. The smaller value counts, since a single critic overestimates (Fujimoto et al. 2018,
arXiv:1802.09477)."""

_LOG_SIGMA_RANGE = (-20.0, 2.0)


class SquashedHeads(nn.Module):
    """The tanh of a Gaussian whose deviation depends on the observation; a categorical per branch."""

    offsets: Tensor
    """The index of each branch's first choice among all. int64 [branches]"""

    def __init__(self, features: int, spec: ActionSpec) -> None:
        super().__init__()
        self.branches: Sequence[int] = spec.discrete_branches
        offsets = torch.tensor(dist.choice_offsets(self.branches), dtype=torch.int64)
        self.register_buffer("offsets", offsets, persistent=False)
        size = spec.continuous_size
        self.mean = kaiming_linear(features, size, gain=0.2) if size else None
        self.log_sigma = kaiming_linear(features, size, gain=0.2) if size else None
        self.logits = kaiming_linear(features, spec.mask_size, gain=0.1) if self.branches else None

    def forward(self, features: Tensor) -> ActionParameters:
        """Maps [B, F] to parameters, with log σ [B, continuous size]."""
        mean = log_sigma = logits = features[:, :0]
        if self.mean is not None and self.log_sigma is not None:
            mean = self.mean.forward(features)
            log_sigma = self.log_sigma.forward(features).clamp(*_LOG_SIGMA_RANGE)
        if self.logits is not None:
            logits = self.logits.forward(features)
        return ActionParameters(mean, log_sigma, logits)

    def draw(
        self, parameters: ActionParameters, allowed: Tensor | None, noise: Callable[[Tensor], Tensor]
    ) -> Drawn:
        """Samples continuous actions by reparameterization: the gradient passes through the samples.

        allowed: bool [B, K]. noise: returns independent draws of deviation 1, in the shape of its argument.
        """
        continuous, log_prob = parameters.mean, None
        if self.mean is not None:
            z = noise(continuous)
            unbounded = continuous + z * parameters.log_sigma.exp()
            continuous = torch.tanh(unbounded)
            log_prob = dist.standard_gaussian_log_prob(z, parameters.log_sigma) - tanh_correction(unbounded)
        return Drawn(continuous, log_prob, self._log_choices(parameters, allowed))

    def sample(
        self, parameters: ActionParameters, allowed: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns continuous actions in (−1, 1), choices int64 [B, branches], and their joint log-probability."""
        drawn = self.draw(parameters, allowed, partial(dist.standard_normal, generator=generator))
        discrete = torch.empty((len(drawn.continuous), 0), dtype=torch.int64, device=parameters.mean.device)
        if drawn.log_choices is not None:
            discrete = dist.sample_categorical(drawn.log_choices, self.branches, generator)
        return drawn.continuous, discrete, self._joint(drawn, discrete)

    def most_likely(
        self, parameters: ActionParameters, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the likeliest actions: tanh of the mean, and each branch's likeliest choice."""
        mean, log_prob = parameters.mean, None
        if self.mean is not None:
            density = dist.gaussian_log_prob(mean, mean, parameters.log_sigma)
            log_prob = density - tanh_correction(mean)
        drawn = Drawn(torch.tanh(mean), log_prob, self._log_choices(parameters, allowed))
        discrete = torch.empty((len(mean), 0), dtype=torch.int64, device=mean.device)
        if drawn.log_choices is not None:
            discrete = dist.greedy_categorical(drawn.log_choices, self.branches)
        return drawn.continuous, discrete, self._joint(drawn, discrete)

    def squared_error(
        self, parameters: ActionParameters, target: Tensor, noise: Callable[[Tensor], Tensor]
    ) -> Tensor | None:
        """Squared errors of sampled actions. target: [B, C], in [−1, 1]. Returns [B, C] or None."""
        if self.mean is None:
            return None
        return (self.draw(parameters, None, noise).continuous - target).square()

    def _log_choices(self, parameters: ActionParameters, allowed: Tensor | None) -> Tensor | None:
        if self.logits is None:
            return None
        return dist.masked_log_softmax(parameters.logits, allowed, self.branches)

    def _joint(self, drawn: Drawn, discrete: Tensor) -> Tensor:
        joint = drawn.continuous.new_zeros(len(discrete)) if drawn.log_prob is None else drawn.log_prob
        if drawn.log_choices is None:
            return joint
        return joint + dist.categorical_log_prob(drawn.log_choices, discrete + self.offsets)


class SoftActor(nn.Module):
    """The policy."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings) -> None:
        """Raises ValueError if the networks of the settings do not support a sensor."""
        super().__init__()
        self.actor = Trunk(spec, settings)
        self.memory_size = self.policy_memory_size = self.actor.memory_size
        self.actions = SquashedHeads(self.actor.output_size, spec.action_spec)

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns the distribution of each agent's action, for observations as in ActorCritic."""
        return self.actions.forward(self.actor.forward(observations_as_floats(observations)))

    def policy_from(self, inputs: EncoderInput) -> ActionParameters:
        """Returns the parameters of actions at the selected steps, given earlier steps."""
        return self.actions.forward(self.actor.encode(inputs))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns parameters of one step, and each agent's next memory. memories: [B, memory size]."""
        features, next_memories = self.actor.step(observations_as_floats(observations), memories)
        return self.actions.forward(features), next_memories


class SoftCritics(nn.Module):
    """Two critics Q(s, a), each with its own encoder and body, computed together.

    Their weights are stacked, so one batched product computes both. With minibatches of some hundred rows, starting an
    operation costs as much as its arithmetic.

    With memory, each critic has its own trunk for observations, and one more layer adds an action. So the memory does
    not depend on the evaluated action, and one pass over a sequence suffices for all actions. In an agent's memory,
    the critics' part follows the actor's.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, value_heads: int, norm: CriticNorm = "none"
    ) -> None:
        """Raises ValueError if the networks of the settings do not support a sensor or the normalization."""
        super().__init__()
        self._values = (value_heads, max(spec.action_spec.mask_size, 1))
        self.encoders = _encoders(spec, settings)
        self.memory_size = sum(each.memory_size for each in self._trunks())
        first = cast("ObservationEncoder | Trunk", self.encoders[0])
        inputs = first.output_size + spec.action_spec.continuous_size
        goal: list[slice] = []
        if isinstance(first, ObservationEncoder) and settings.goal_conditioning_type == "hyper":
            goal = first.goal_columns
        layers = 1 if self.memory_size else max(settings.num_layers, 1)
        sizes = [inputs] + [settings.hidden_units] * layers
        if goal and norm != "none":
            raise ValueError(
                f"hyperparameters.critic_norm: {norm} does not go with goals that generate weights; set "
                "goal_conditioning_type: none"
            )
        if goal:
            shape = (inputs, settings.hidden_units, settings.num_layers)
            seen = cast(ObservationEncoder, first).goals_are_seen
            self.body: nn.ModuleList = nn.ModuleList(
                ConditionalBody(*shape, goal, seen=seen) for _ in range(CRITICS)
            )
        else:
            self.body = nn.ModuleList(
                TwinLinear([hidden_linear(before, after, settings.activation) for _ in range(CRITICS)])
                for before, after in itertools.pairwise(sizes)
            )
        outputs = value_heads * self._values[1]
        self.q = TwinLinear([xavier_linear(settings.hidden_units, outputs) for _ in range(CRITICS)])
        self._conditional = bool(goal)
        self.activation = settings.activation
        self.norms = nn.ModuleList(BatchNorms(CRITICS, size) for size in sizes if norm == "batch")

    def forward(self, inputs: EncoderInput, continuous: Tensor) -> Tensor:
        """Maps normalized observations and [B, C] to [critics, B, value heads, choices or 1]."""
        return self.values(self.encode(inputs), continuous)

    def encode(self, inputs: EncoderInput) -> list[Tensor]:
        """Returns the critics' features without actions: [B, F] of each, or one for both."""
        if not self.memory_size:
            observations = observations_as_floats(inputs.observations)
            return [cast(ObservationEncoder, each).forward(observations) for each in self.encoders]
        return [trunk.encode(inputs) for trunk in self._trunks()]

    def values(self, features: list[Tensor], continuous: Tensor) -> Tensor:
        """Maps the features of ``encode`` and actions [B, C] to values [critics, B, value heads, choices or 1]."""
        inputs = [torch.cat([each, continuous], dim=-1) for each in features]
        return self._outputs(inputs).view(CRITICS, -1, *self._values)

    def joint_values(
        self, inputs: EncoderInput, continuous: Tensor, next_inputs: EncoderInput, next_continuous: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Maps two batches to their values like ``forward``, in one pass that normalizes the rows of both together.

        Batch normalization learns its moments here. All other passes use the moments learned so far.
        """
        features = [
            torch.cat(each) for each in zip(self.encode(inputs), self.encode(next_inputs), strict=True)
        ]
        both = torch.cat([continuous, next_continuous])
        inputs_of_body = [torch.cat([each, both], dim=-1) for each in features]
        q = self._outputs(inputs_of_body, learns_moments=True).view(CRITICS, -1, *self._values)
        first, second = q.chunk(2, dim=1)
        return first, second

    def remember(self, observations: Sequence[Tensor], memories: Tensor) -> Tensor:
        """Returns the critics' memories after one more step. [B, memory_size]"""
        observations = observations_as_floats(observations)
        return torch.cat([trunk.step(observations, memories)[1] for trunk in self._trunks()], dim=1)

    def heads_from(
        self, state: Mapping[str, Tensor], heads: Sequence[int | None], known: int
    ) -> dict[str, Tensor]:
        """Returns the last layer with value heads of another state; None keeps the own head. known: its heads."""
        mixed = {}
        for name, own in self.q.state_dict(prefix="q.").items():
            mine, theirs = (
                each.unflatten(-1, (count, -1))
                for each, count in ((own.clone(), self._values[0]), (state[name], known))
            )
            for head, source in enumerate(heads):
                if source is not None:
                    mine[..., head, :] = theirs[..., source, :]
            mixed[name] = mine.flatten(-2)
        return mixed

    def _trunks(self) -> list[Trunk]:
        return [each for each in self.encoders if isinstance(each, Trunk)]

    def _outputs(self, inputs: list[Tensor], *, learns_moments: bool = False) -> Tensor:
        own = inputs if len(inputs) == CRITICS else inputs * CRITICS
        if self._conditional:
            bodies = zip(self.body, own, strict=True)
            features = [cast(ConditionalBody, body).forward(each) for body, each in bodies]
            return self.q.forward(torch.stack(features))
        if not self.norms and is_faster(inputs[0], self.q.weight, self.q.weight.shape[1]):
            # Large products gain nothing from batching, and their intermediate results stay in the cache.
            for layer in cast(Iterable[TwinLinear], self.body):
                own = layer.apart(own, self.activation)
            return torch.stack(self.q.apart(own))
        together = inputs[0].expand(CRITICS, -1, -1) if len(inputs) == 1 else torch.stack(inputs)
        for layer, norm in itertools.zip_longest(
            cast(Iterable[TwinLinear], [*self.body, self.q]), cast(Iterable[BatchNorms], self.norms)
        ):
            if norm is not None:
                together = norm.learn(together) if learns_moments else norm.forward(together)
            together = layer.forward(together)
            if layer is not self.q:
                together = activated(together, self.activation)
        return together


def _encoders(spec: BehaviorSpec, settings: NetworkSettings) -> nn.ModuleList:
    """Makes an encoder for each critic, or one for both if it has no parameters; with memory, trunks."""
    if settings.memory is not None:
        size = settings.memory.memory_size
        return nn.ModuleList(
            Trunk(spec, settings, memory_start=size * (1 + critic)) for critic in range(CRITICS)
        )
    encoders = [ObservationEncoder(spec.observation_specs, settings) for _ in range(CRITICS)]
    # An encoder does not change vectors, so one is enough.
    learned = any(True for _ in encoders[0].parameters())
    return nn.ModuleList(encoders if learned else encoders[:1])


class TwinLinear(nn.Module):
    """N linear layers of one shape, each with its own input, as one batched product."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers]))

    def forward(self, features: Tensor) -> Tensor:
        """Maps [N, B, inputs] to [N, B, outputs]."""
        return torch.baddbmm(self.bias, features, self.weight)

    def apart(self, features: Sequence[Tensor], activation: Activation | None = None) -> list[Tensor]:
        """Computes the same layer by layer: N times [B, inputs] to [B, outputs]."""
        layers = zip(features, self.weight.unbind(), self.bias.unbind(), strict=True)
        return [linear(each, weight.t(), bias.squeeze(0), activation) for each, weight, bias in layers]
