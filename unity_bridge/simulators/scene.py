"""The interface of a scene, a small world with agents in it, advanced one message at a time; and parts to make one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unity_bridge.errors import BridgeError
from unity_bridge.specs import BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType
from unity_bridge.steps import ActionBatch, Observation, StepBatch, join_observations
from unity_bridge.steps import Steps as Steps


class SceneError(BridgeError):
    """A scene that cannot be opened or went wrong: the user's environment or its arguments. One line."""


class Scene(Protocol):
    """A world that a simulator hosts. It knows nothing of messages, ports or trainers."""

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """The specs of the behaviors, by behavior id (``3DBall?team=0``)."""

    @property
    def frame_s(self) -> float:
        """The time that one rendered step is shown for, in seconds."""

    def reset(self, seed: int | None = None) -> Steps:
        """Starts every agent's episode again, without ending the old ones, and asks for the first actions.

        Args:
            seed: makes everything that follows reproducible; None continues with the random numbers at hand.
        """

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        """Acts for the rows that waited, in their order, and continues until some agent has something to say.

        Args:
            actions: one batch for each behavior that had rows waiting.
        """

    def render(self) -> NDArray[np.uint8]:
        """The world as it stands, RGB. Shape [H, W, 3], the same every time."""

    def close(self) -> None:
        """Closes the scene."""


class SceneOpener(Protocol):
    """An opener of environments, which a plugin of the group ``trainer_service.simulators`` offers for a scheme."""

    def __call__(
        self, name: str, *, agents: int | None, academy: Any, env_kwargs: Mapping[str, Any], rendered: bool
    ) -> Scene:
        """Opens ``scheme:name``. Raises SceneError, or anything else, which is shown with its place.

        Args:
            name: what follows the scheme; never empty.
            agents: how many, by ``--agents``; None for the scene's own number.
            academy: where it reads environment parameters and leaves statistics (``Academy``).
            env_kwargs: by ``--env-kwargs``.
            rendered: whether render() will be called.
        """


@runtime_checkable
class Demonstrator(Scene, Protocol):
    """A scene with an expert, which can be recorded as a demonstration."""

    def expert(self) -> Mapping[str, ActionBatch]:
        """The actions of an expert that knows the whole world, for every row that waits, in their order.

        It changes nothing in the scene, and is meaningful after reset() and after every step().

        Returns:
            One batch for each behavior of the last message that has rows waiting; step() takes it as it is.
        """


def copies_of(scene: Scene) -> int:
    """The number of environments in a scene, which all advance at each step: its attribute ``copies``, or 1."""
    copies = getattr(scene, "copies", 1)
    return copies if isinstance(copies, int) else 1


def flag_of(option: str) -> str:
    """The flag of a scene's option on the command line."""
    return f"--{option.replace('_', '-')}"


def choices(chosen: NDArray[np.integer[Any]]) -> ActionBatch:
    """Actions of discrete branches only.

    Args:
        chosen: an index per branch, shape [M, branches], or [M] for a single branch.
    """
    branches = (chosen[:, None] if chosen.ndim == 1 else chosen).astype(np.int32)
    return ActionBatch(np.zeros((len(branches), 0), np.float32), branches)


def vector_sensor(
    name: str, size: int, observation_type: ObservationType = ObservationType.DEFAULT
) -> ObservationSpec:
    """A sensor of plain numbers, described as Unity describes one."""
    return ObservationSpec(name, (size,), (DimensionProperty.NONE,), observation_type)


def entity_sensor(name: str, most: int, size: int) -> ObservationSpec:
    """A sensor that lists up to ``most`` things of ``size`` numbers each; unused rows are zero."""
    return ObservationSpec(name, (most, size), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE))


def camera_sensor(name: str, height: int, width: int) -> ObservationSpec:
    """A camera in colours, shape (3, height, width)."""
    moves = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
    return ObservationSpec(name, (3, height, width), (DimensionProperty.NONE, moves, moves))


def step_batch(
    observations: Sequence[Observation],
    rewards: NDArray[np.float32],
    *,
    agent_ids: NDArray[np.int64],
    allowed_actions: NDArray[np.bool_] | None = None,
    terminated: NDArray[np.bool_] | None = None,
    truncated: NDArray[np.bool_] | None = None,
    group_ids: NDArray[np.int64] | None = None,
    group_rewards: NDArray[np.float32] | None = None,
) -> StepBatch:
    """A batch of agents; by default no episode ended, every action is allowed and there are no groups.

    Args:
        observations: an array for each sensor, shape [N, *sensor shape].
        rewards: since each agent's previous row. Shape [N].
        agent_ids: one id for each agent, from 0. Shape [N].
        allowed_actions: True where a choice is allowed, shape [N, sum of branches]; None allows everything.
        terminated: True where the task ended. Shape [N].
        truncated: True where only a time limit ended the episode. Shape [N].
        group_ids: the group of each agent, 0 for none. Shape [N].
        group_rewards: the reward of each agent's group. Shape [N].
    """
    rows = len(agent_ids)
    none = np.zeros(rows, np.bool_)
    return StepBatch(
        agent_ids=agent_ids,
        observations=tuple(observations),
        rewards=rewards,
        terminated=none if terminated is None else terminated,
        truncated=none if truncated is None else truncated,
        allowed_actions=np.ones((rows, 0), np.bool_) if allowed_actions is None else allowed_actions,
        group_ids=np.zeros(rows, np.int64) if group_ids is None else group_ids,
        group_rewards=np.zeros(rows, np.float32) if group_rewards is None else group_rewards,
    )


def concatenate(terminal: StepBatch, deciding: StepBatch) -> StepBatch:
    """Joins both batches in one message, terminal rows first."""
    ended_masks, waiting_masks = terminal.allowed_actions, deciding.allowed_actions
    if ended_masks.shape[1] != waiting_masks.shape[1]:
        ended_masks, waiting_masks = _with_masks(ended_masks, waiting_masks)
    return StepBatch(
        agent_ids=np.concatenate([terminal.agent_ids, deciding.agent_ids]),
        observations=tuple(
            join_observations(pair) for pair in zip(terminal.observations, deciding.observations, strict=True)
        ),
        rewards=np.concatenate([terminal.rewards, deciding.rewards]),
        terminated=np.concatenate([terminal.terminated, deciding.terminated]),
        truncated=np.concatenate([terminal.truncated, deciding.truncated]),
        allowed_actions=np.concatenate([ended_masks, waiting_masks]),
        group_ids=np.concatenate([terminal.group_ids, deciding.group_ids]),
        group_rewards=np.concatenate([terminal.group_rewards, deciding.group_rewards]),
    )


def _with_masks(*masks: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """The masks of several batches; one of no columns, which was omitted, allows everything."""
    width = max(mask.shape[1] for mask in masks)
    return [mask if mask.shape[1] else np.ones((len(mask), width), np.bool_) for mask in masks]
