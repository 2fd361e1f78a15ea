"""The actor of a behavior: its policy network, normalizer and random stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from trainer_service.learning.algorithms.common.acting import (
    ActionSampler,
    ActorNetwork,
    sample_actions,
    to_array,
    to_tensor,
)
from trainer_service.learning.algorithms.common.exploration import Exploration
from trainer_service.learning.algorithms.common.policy_network import PolicyModule, PolicyNetwork
from trainer_service.learning.kernels.mlp_actor import MlpActor, actor_for
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import FlatParameters
from trainer_service.learning.networks.policies.action_heads import SQUASH_LIMIT
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.policies.q_network import GreedyChoices
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.steps import Observation

_SQUASH_LIMIT, _ONE = np.float32(SQUASH_LIMIT), np.float32(1.0)


class ActRequest(NamedTuple):
    """M agents that wait for an action."""

    observations: Sequence[Observation]
    """One array ``[M, *sensor shape]`` per sensor."""

    allowed_actions: NDArray[np.bool_]
    """Action mask of discrete actions, branches concatenated. Shape [M, sum of branches]."""

    memories: NDArray[np.float32]
    """Recurrent state of each agent, zeros at an episode's start. Shape [M, memory size], or the policy's part only,
    if nothing is learned from the decision."""

    deterministic: bool = False
    """Whether to return the likeliest action instead of a sampled one."""


def _clipped_actions(continuous: NDArray[np.float32]) -> NDArray[np.float32]:
    """Continuous actions for the simulator, clip(a, −3, 3)/3: most of a unit Gaussian covers [−1, 1].

    Exported models compute the same (``PolicyNetwork.squash``). Shape kept.
    """
    if not continuous.shape[1]:
        return continuous
    scaled: NDArray[np.float32] = continuous / _SQUASH_LIMIT
    np.maximum(scaled, -_ONE, out=scaled)
    return np.minimum(scaled, _ONE, out=scaled)


def bounded_actions(continuous: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns continuous actions unchanged, for a policy with actions in [−1, 1]."""
    return continuous


class Actor:
    """Computes the actions of a behavior's agents: network, normalizer, exploration and a random stream.

    Learners, rollout workers, self-play, ``Policy`` and exported models use it. With the same weights, random stream
    and requests, it returns the same actions.
    """

    def __init__(
        self,
        network: ActorNetwork,
        normalizer: ObservationNormalizer,
        stream: torch.Generator,
        device: torch.device,
        *,
        exploration: Exploration | None = None,
        env_actions: Callable[[NDArray[np.float32]], NDArray[np.float32]] = _clipped_actions,
        model: Callable[[ObservationNormalizer, Any], PolicyNetwork] = PolicyNetwork,
        exported: PolicyModule | None = None,
        parameters: FlatParameters | None = None,
        own_actions: NDArray[np.float32] | None = None,
    ) -> None:
        """
        Args:
            network: the policy, on the device.
            normalizer: normalizes observations before the network.
            stream: the random stream of sampled actions.
            device: of network and normalizer.
            exploration: added while ``explores``; None samples from the policy only.
            env_actions: maps continuous actions [M, C] to the simulator's actions.
            model: makes the network of a model file.
            exported: the network of a model file, if it is only a part of ``network``.
            parameters: exactly those of ``network``, for faster decisions of an MLP policy.
            own_actions: 1 if the agent of an index has a continuous action, [agents of a group, C], if some agents
                lack actions. Then agent ids are the last sensor.
        """
        self.network = network
        self.normalizer = normalizer
        self.stream = stream
        self.device = device
        self.exploration = exploration or Exploration()
        self.explores = False
        """Whether exploration is added to actions that are not deterministic. True during learning."""
        self._env_actions = env_actions
        self._model = model
        self._exported = cast(PolicyModule, network if exported is None else exported)
        self._parameters = parameters
        self._own_actions = own_actions

    @property
    def memory_size(self) -> int:
        """Floats of an agent's memory between decisions: the network's, then the exploration's."""
        return self.network.memory_size + self.exploration.memory_size

    def act(self, request: ActRequest) -> Decisions:
        """Computes the actions of M agents in one forward pass."""
        if self.fast is not None and not request.deterministic:
            decisions = self.fast.act(request.observations, request.allowed_actions, request.memories)
            if decisions is not None:
                return decisions
        heads, explores = self.network.actions, self.explores and not request.deterministic
        sample: ActionSampler
        if request.deterministic:
            sample = heads.most_likely
        elif explores:
            sample = self.exploration.sampler(heads, self.stream)
        else:
            sample = partial(heads.sample, generator=self.stream)
        decisions = sample_actions(
            self.network,
            self.normalizer.forward,
            request.observations,
            request.allowed_actions,
            request.memories,
            device=self.device,
            sample=sample,
        )
        if explores:
            decisions = self.exploration.perturb(decisions, self.stream)
        if self._own_actions is None:
            return decisions
        own = (request.observations[-1] @ self._own_actions).astype(np.float32)
        return replace(decisions, continuous_actions=decisions.continuous_actions * own)

    @cached_property
    def fast(self) -> MlpActor | None:
        """A faster actor with the same decisions, for an MLP policy without exploration.

        It is created at the first decision, when all parameters have their final addresses.
        """
        if self._parameters is None or type(self.exploration) is not Exploration:
            return None
        return actor_for(cast(nn.Module, self.network), self._parameters, self.normalizer, self.stream)

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """Returns the continuous actions for the simulator. Shape [M, continuous size]."""
        return self._env_actions(decisions.continuous_actions)

    def values(self, observations: Sequence[Observation]) -> NDArray[np.float32] | None:
        """Returns values of agents' states by the policy's network, [M]; None if it has no values, or has memory.

        The value is the critic's for the first reward signal, or the value of the best action.
        """
        if self.network.memory_size:
            return None
        with torch.inference_mode():
            inputs = self.normalizer.forward([to_tensor(sensor, self.device) for sensor in observations])
            if isinstance(self.network, ActorCritic):
                return to_array(self.network.values(inputs)[:, 0])
            if isinstance(self.network.actions, GreedyChoices):
                return to_array(self.network.policy(inputs).logits.amax(dim=1))
        return None

    def update_normalizer(self, trajectories: Trajectories) -> None:
        """Adds the observations of trajectories to the normalizer's statistics."""
        if self.normalizer.normalizes:
            self.normalizer.update([to_tensor(sensor, self.device) for sensor in trajectories.observations])

    def state_dict(self) -> dict[str, Any]:
        """The state of decisions without the random stream: tensors and plain Python values only, not copied."""
        return {
            "network": cast(nn.Module, self.network).state_dict(),
            "normalizer": self.normalizer.state_dict(),
            "exploration": self.exploration.state_dict(),
            "explores": self.explores,
        }

    def load_state_dict(self, state: Mapping[str, Any], seed: int) -> None:
        """Restores an actor's state, with a new random stream of this seed.

        Raises KeyError or RuntimeError if it does not fit.
        """
        cast(nn.Module, self.network).load_state_dict(state["network"])
        self.normalizer.load_state_dict(state["normalizer"])
        self.exploration.load_state_dict(state["exploration"])
        self.explores = state["explores"]
        self.stream.manual_seed(seed)

    def policy_network(self) -> PolicyNetwork:
        """Returns a copy of the present normalizer and policy, without exploration: the network of a model file."""
        return self._model(self.normalizer, self._exported)

    def weights(self) -> dict[str, Any]:
        """Returns a copy of the present weights for a ``frozen`` actor, without the critic's."""
        return _without_critic(self.policy_network()).state_dict()

    def frozen(self, stream: torch.Generator) -> Actor:
        """Returns an actor with a copy of the present policy, without critic and exploration.

        Its network has only the policy's part of a memory. The rest of agents' memories stays unchanged.
        """
        policy = _without_critic(self.policy_network()).to(self.device)
        actor = copy.copy(self)
        actor.__dict__.pop("fast", None)
        actor.network, actor.normalizer, actor.stream = policy.network, policy.normalizer, stream
        actor.exploration, actor.explores = Exploration(), False
        actor._exported, actor._parameters = policy.network, None
        return actor

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Loads ``weights`` of the actor that this one is a frozen copy of."""
        parts = {"normalizer": self.normalizer, "network": cast(nn.Module, self.network)}
        nn.ModuleDict(parts).load_state_dict(weights)


def _without_critic(policy: PolicyNetwork) -> PolicyNetwork:
    """Returns the policy without the parts for learning."""
    if isinstance(policy.network, ActorCritic):
        policy.network.critic = None
    return policy
