"""A trained policy for the observation and action spaces of a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import ArrayLike, NDArray

from trainer_service.errors import UserError
from trainer_service.running.runs.checkpoint import spec_mismatch
from unity_bridge.simulators.foreign.environment import AgentStep
from unity_bridge.simulators.foreign.lookup.wrappers import require_no_normalization
from unity_bridge.simulators.foreign.masks import MaskReader, mask_method, masks_by_copy
from unity_bridge.simulators.foreign.roles import interface_of
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

NO_METHOD = "the environment has a method for action masks, which cannot be asked here: pass {}"
"""A warning; what to pass is filled in."""


class ArrayPolicy(Protocol):
    """The methods of a policy on arrays that are used here; ``trainer_service.running.policy.Policy`` is one."""

    behavior: str
    spec: BehaviorSpec
    memory_size: int

    @property
    def num_agents(self) -> int: ...

    def predict(
        self,
        observations: Sequence[ArrayLike],
        memories: NDArray[np.float32] | None = ...,
        allowed_actions: ArrayLike | None = ...,
        *,
        episode_starts: ArrayLike | None = ...,
        agent_indices: ArrayLike | None = ...,
        groups: ArrayLike | None = ...,
        deterministic: bool = ...,
    ) -> tuple[ActionBatch, NDArray[np.float32]]: ...


class GymPolicy:
    """A policy on one environment's own spaces, as ``Policy.wrap`` makes it.

    It keeps no state. ``predict`` has the arguments and results of Stable-Baselines3's, so code for
    such policies accepts it. A copy, also in another process, does not know the environment, which others may step.
    """

    def __init__(self, policy: ArrayPolicy, env: Any) -> None:
        """Reads the spaces of an environment, or of each copy in a vector environment.

        Raises:
            UserError: an object without spaces, or with others than the policy was trained on.
            SceneError: a space that no policy of ours takes, or a wrapper that normalizes.
        """
        self.observation_space: Any = _space_of(env, "observation_space")
        self.action_space: Any = _space_of(env, "action_space")
        self._policy = policy
        self._code = code = ForeignCode(f"policy of behavior '{policy.behavior}'")
        require_no_normalization(code.name, env)
        interface = interface_of(self.observation_space, self.action_space, code)
        self._sensors, self._actuator = interface.sensors, interface.actuator
        self._masks = MaskReader(policy.behavior, interface.actuator, interface.mask, code)
        self._method = (
            mask_method(env) if interface.mask is None and interface.actuator.spec.mask_size else None
        )
        self._has_method = self._method is not None
        self._copies = env.num_envs if hasattr(env, "single_action_space") else None
        spec = BehaviorSpec(tuple(sensor.spec for sensor in self._sensors), self._actuator.spec)
        if changed := spec_mismatch(policy.spec, spec):
            raise UserError(
                f"the environment is not what the policy of behavior '{policy.behavior}' was trained for: {changed}"
            )

    def predict(
        self,
        observation: Any,
        state: NDArray[np.float32] | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, NDArray[np.float32] | None]:
        """The action for an observation, or those for a batch of them.

        Args:
            observation: of the observation space, or N of them as a vector environment gives them: along a first
                dimension, in each member of a Dict and a Tuple.
            state: the memory of a recurrent policy, as the previous call returned it; None where an episode begins.
            episode_start: True where an episode begins, which resets the memory. bool or [N]
            deterministic: the likeliest action instead of one that is drawn.
            action_masks: ``info["action_mask"]`` of the environment, 1 where a choice is allowed: one array, or one for
                each branch; N of them for a batch. None takes the mask that is a member of the observation, else that
                of the environment's own method, and allows everything where there is none.

        Returns:
            The action in the action space, or a batch of them; and what is to be remembered, float32 [N, memory size],
            or None without memory.

        Raises:
            SceneError: an observation that is no member of its space, or a mask that does not fit.
            ValueError: a state that does not fit, or an observation that is not finite.
        """
        size = _batch_size(self.observation_space, observation)
        count = 1 if size is None else size
        space = self.observation_space
        rows = [observation] if size is None else list(iterate(batch_space(space, size), observation))
        # Before the environment, which may write into them, is asked for masks.
        seen = [sensor.read_all(rows) for sensor in self._sensors]
        if action_masks is None:
            action_masks = self._masks_of_method(count)
        elif size is None:
            action_masks = [action_masks]
        policy = self._policy
        actions, memories = policy.predict(
            seen,
            state,
            self._allowed(rows, action_masks),
            episode_starts=None if episode_start is None else np.broadcast_to(episode_start, count),
            agent_indices=np.zeros(count, np.int64) if policy.num_agents else None,
            groups=np.arange(count) if policy.num_agents else None,
            deterministic=deterministic,
        )
        chosen = self._actuator.build(
            actions.continuous.astype(np.float64), actions.discrete.astype(np.int64)
        )
        remembered = memories if policy.memory_size else None
        if size is None:
            return chosen[0], remembered
        empty: Any = create_empty_array(self.action_space, size)
        return concatenate(self.action_space, chosen, empty), remembered

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_method": None}

    def _masks_of_method(self, count: int) -> Sequence[Any] | None:
        """The masks of the environment's own method, for each of its copies; None without such a method."""
        if self._method is not None and count == (self._copies or 1):
            masks = self._code.call("the method of action masks", self._method)
            return [masks] if self._copies is None else masks_by_copy(masks, None, count)
        if self._has_method:
            self._code.warn("method", NO_METHOD.format("action_masks to predict()"))
        return None

    def _allowed(self, rows: Sequence[Any], masks: Sequence[Any] | None) -> NDArray[np.bool_]:
        each = [None] * len(rows) if masks is None else masks
        if len(each) != len(rows):
            raise ValueError(f"action_masks: expected {len(rows)} of them, got {len(each)}")
        steps = [
            AgentStep(None, row if mask is None else None, mask) for row, mask in zip(rows, each, strict=True)
        ]
        return self._masks.read(steps, deciding=True, refuses=True)


def _space_of(env: Any, name: str) -> Any:
    """A space of the environment, or of each copy in a vector environment."""
    space = getattr(env, f"single_{name}", None) or getattr(env, name, None)
    if not isinstance(space, spaces.Space):
        raise UserError(f"expected a Gymnasium environment, got {env!r:.80}, which has no {name}")
    return space


def _batch_size(space: Any, observation: Any) -> int | None:
    """How many observations there are along the first dimension; None for a single one without that."""
    if isinstance(space, spaces.Dict):
        key = next(iter(space.spaces))
        return _batch_size(space.spaces[key], observation[key])
    if isinstance(space, spaces.Tuple):
        return _batch_size(space.spaces[0], observation[0])
    shape = np.shape(observation)
    return shape[0] if len(shape) > len(space.shape or ()) else None
