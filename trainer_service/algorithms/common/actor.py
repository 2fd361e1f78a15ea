"""The actor of a behavior: its policy network, and all else that a decision depends on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from trainer_service.algorithms.common.acting import ActionSampler, sample_actions, to_array, to_tensor
from trainer_service.algorithms.common.acting import ActorNetwork as DecidingNetwork
from trainer_service.algorithms.common.exploration import ActionHeads, Exploration
from trainer_service.algorithms.common.policy_network import ActorNetwork, PolicyNetwork
from trainer_service.kernels.mlp_actor import MlpActor, actor_for
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatParameters
from trainer_service.networks.policies.action_heads import SQUASH_LIMIT
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.networks.policies.q_network import GreedyNetwork
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.steps import Observation

_SQUASH_LIMIT, _ONE = np.float32(SQUASH_LIMIT), np.float32(1.0)


@dataclass(frozen=True, slots=True, eq=False)
class ActRequest:
    """M agents that wait for a decision."""

    observations: Sequence[Observation]
    """One array [M, *sensor shape] per sensor."""

    allowed_actions: NDArray[np.bool_]
    """Whether a discrete action is allowed, branches side by side. Shape [M, sum of branches]."""

    memories: NDArray[np.float32]
    """Recurrent state of each agent, zeros at an episode's start. Shape [M, memory size]; or the policy's part alone,
    where nothing is learned from the decision."""

    deterministic: bool = False
    """Whether to return the likeliest action in place of a sampled one."""


class ActingNetwork(DecidingNetwork, Protocol):
    """A network with action heads."""

    @property
    def actions(self) -> ActionHeads: ...


def clipped_actions(continuous: NDArray[np.float32]) -> NDArray[np.float32]:
    """Continuous actions as the simulator gets them, clip(a, −3, 3)/3: a unit Gaussian's bulk covers [−1, 1].

    Exported models do the same (``PolicyNetwork.squash``). Shape kept.
    """
    if not continuous.shape[1]:
        return continuous
    scaled: NDArray[np.float32] = continuous / _SQUASH_LIMIT
    np.maximum(scaled, -_ONE, out=scaled)
    return np.minimum(scaled, _ONE, out=scaled)


def bounded_actions(continuous: NDArray[np.float32]) -> NDArray[np.float32]:
    """Continuous actions of a policy that keeps them in [−1, 1] itself: unchanged."""
    return continuous


class Actor:
    """Decides for the agents of a behavior: network, normalizer, exploration and a random stream.

    Learners, rollout workers, self-play, ``Policy`` and exported models use the same one. With the same weights, the
    same stream and the same requests it makes the same decisions.
    """

    def __init__(
        self,
        network: ActingNetwork,
        normalizer: ObservationNormalizer,
        stream: torch.Generator,
        device: torch.device,
        *,
        exploration: Exploration | None = None,
        env_actions: Callable[[NDArray[np.float32]], NDArray[np.float32]] = clipped_actions,
        model: Callable[[ObservationNormalizer, Any], PolicyNetwork] = PolicyNetwork,
        exported: ActorNetwork | None = None,
        parameters: FlatParameters | None = None,
        own_actions: NDArray[np.float32] | None = None,
    ) -> None:
        """
        Args:
            network: decides; on the device.
            normalizer: observations go through it before the network.
            stream: the random stream that actions are drawn from.
            device: of network and normalizer.
            exploration: added while ``explores``; None samples from the policy only.
            env_actions: maps continuous actions [M, C] to those that the simulator gets.
            model: makes the network of a model file.
            exported: the network of a model file, where it is only a part of ``network``.
            parameters: those of ``network`` and of nothing else, for faster decisions of an MLP policy.
            own_actions: 1 where the agent of an index has a continuous action, [agents of a group, C], if some lack
                any; agent ids are the last sensor then.
        """
        self.network = network
        self.normalizer = normalizer
        self.stream = stream
        self.device = device
        self.exploration = exploration or Exploration()
        self.explores = False
        """Whether exploration is added to decisions that are not deterministic: while it learns."""
        self._env_actions = env_actions
        self._model = model
        self._exported = cast(ActorNetwork, network if exported is None else exported)
        self._parameters = parameters
        self._own_actions = own_actions

    @property
    def memory_size(self) -> int:
        """Floats that an agent carries from one decision to the next: the network's, then the exploration's."""
        return self.network.memory_size + self.exploration.memory_size

    def act(self, request: ActRequest) -> Decisions:
        """Decides for M agents in one forward pass."""
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
        """The same decisions with fewer calls, for an MLP policy without exploration.

        It is made at the first decision, when all parameters are where they stay.
        """
        if self._parameters is None or type(self.exploration) is not Exploration:
            return None
        return actor_for(cast(nn.Module, self.network), self._parameters, self.normalizer, self.stream)

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """The continuous actions as the simulator gets them. Shape [M, continuous size]."""
        return self._env_actions(decisions.continuous_actions)

    def values(self, observations: Sequence[Observation]) -> NDArray[np.float32] | None:
        """The value of each agent's state by the policy's own network, [M]; None where it has none, or a memory.

        That is the critic's value of the first reward signal, or the value of the best action.
        """
        if self.network.memory_size:
            return None
        with torch.inference_mode():
            inputs = self.normalizer.forward([to_tensor(sensor, self.device) for sensor in observations])
            if isinstance(self.network, ActorCritic):
                return to_array(self.network.values(inputs)[:, 0])
            if isinstance(self.network, GreedyNetwork):
                return to_array(self.network.q_values(inputs).amax(dim=1))
        return None

    def update_normalizer(self, trajectories: Trajectories) -> None:
        """Adds the observations of trajectories to the normalizer's statistics."""
        self.normalizer.update([to_tensor(sensor, self.device) for sensor in trajectories.observations])

    def state_dict(self) -> dict[str, Any]:
        """Everything that decisions depend on but the random stream: tensors and plain Python only, not copied."""
        return {
            "network": cast(nn.Module, self.network).state_dict(),
            "normalizer": self.normalizer.state_dict(),
            "exploration": self.exploration.state_dict(),
            "explores": self.explores,
        }

    def load_state_dict(self, state: Mapping[str, Any], seed: int) -> None:
        """Decides as the actor of that state does, with draws from a stream of this seed.

        Raises KeyError or RuntimeError where it does not fit.
        """
        cast(nn.Module, self.network).load_state_dict(state["network"])
        self.normalizer.load_state_dict(state["normalizer"])
        self.exploration.load_state_dict(state["exploration"])
        self.explores = state["explores"]
        self.stream.manual_seed(seed)

    def policy_network(self) -> PolicyNetwork:
        """A copy of normalizer and policy as they are now, without exploration: the network of a model file."""
        return self._model(self.normalizer, self._exported)

    def weights(self) -> dict[str, Any]:
        """A copy of the weights of a ``frozen`` actor: those of the policy as it is now, without a critic."""
        return _without_critic(self.policy_network()).state_dict()

    def frozen(self, stream: torch.Generator) -> Actor:
        """An actor with a copy of the policy as it is now, without critic and exploration.

        Its network has the policy's part of a memory alone; the rest of what agents remember stays as it is.
        """
        policy = _without_critic(self.policy_network()).to(self.device)
        actor = copy.copy(self)
        actor.__dict__.pop("fast", None)
        actor.network, actor.normalizer, actor.stream = policy.network, policy.normalizer, stream
        actor.exploration, actor.explores = Exploration(), False
        actor._exported, actor._parameters = policy.network, None
        return actor

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Decides with these from now on: ``weights`` of the actor that this one is a frozen copy of."""
        parts = {"normalizer": self.normalizer, "network": cast(nn.Module, self.network)}
        nn.ModuleDict(parts).load_state_dict(weights)


def _without_critic(policy: PolicyNetwork) -> PolicyNetwork:
    """The policy, less what only learning needs."""
    if isinstance(policy.network, ActorCritic):
        policy.network.critic = None
    return policy
