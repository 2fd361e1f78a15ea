"""Copies of one Gymnasium environment as the agents of one behavior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Floats
from unity_bridge.simulators.gym_envs import spaces as gym_spaces
from unity_bridge.simulators.gym_envs.copies import Copies, CopiesStep, Seen
from unity_bridge.simulators.scene import SceneError, Steps, concatenate, step_batch
from unity_bridge.simulators.third_party import call_guarded, float32
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch

_DEFAULT_FPS = 30


class GymScene:
    """N copies of an environment, each an agent that decides at every step.

    Spaces become sensors and actions as ``gym_envs.spaces`` says. ``terminated`` and ``truncated`` stay what they are
    (both at once is terminated); an episode's last observation goes into its terminal row, and the next one's first
    into a deciding row: of the same message, or of the next one where a copy begins anew by a step of its own.
    ``info["action_mask"]`` is respected where it fits.

    Numbers too large for float32 become the largest there is; infinities and NaN are passed on, for the
    trainer to refuse by name.

    Raises:
        SceneError: a space that cannot be sent, or whatever the environment raised.
    """

    def __init__(self, called: str, name: str, copies: Copies) -> None:
        """
        Args:
            called: as the user wrote the environment, for messages.
            name: of the behavior.
            copies: of the environment.
        """
        self._called = called
        self._copies = copies
        self._behavior = f"{name}?team=0"
        self._sensors = call_guarded(called, "spaces", lambda: gym_spaces.sensors(copies.observation_space))
        self._actuator = call_guarded(called, "spaces", lambda: gym_spaces.actuator(copies.action_space))
        self._deciding_copies = np.arange(len(copies))
        """Those that have a deciding row in the last message, in the order of these rows."""

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        specs = tuple(sensor.spec for sensor in self._sensors)
        return {self._behavior: BehaviorSpec(specs, self._actuator.spec)}

    @property
    def frame_s(self) -> float:
        return 1 / (self._copies.metadata.get("render_fps") or _DEFAULT_FPS)

    def reset(self, seed: int | None = None) -> Steps:
        first = self._copies.reset(seed)
        self._deciding_copies = np.arange(len(first))
        return {self._behavior: self._deciding(first, np.zeros(len(first)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        step = self._copies.step(self._chosen(actions[self._behavior]))
        self._deciding_copies = np.array([i for i, seen in enumerate(step.following) if seen is not None])
        following = [seen for seen in step.following if seen is not None]
        if not step.ended.any():
            return {self._behavior: self._deciding(following, step.rewards[self._deciding_copies])}
        rewards = np.where(step.ended, 0, step.rewards)[self._deciding_copies]
        return {self._behavior: concatenate(self._terminal(step), self._deciding(following, rewards))}

    def render(self) -> NDArray[np.uint8]:
        """Renders copy 0."""
        frame = call_guarded(self._called, "render()", self._copies.render)
        if not isinstance(frame, np.ndarray):
            raise SceneError(
                f"{self._called}: render() gave no picture but {frame!r}; a function that makes environments is asked "
                "for pictures by its parameter render_mode"
            )
        return np.asarray(frame, np.uint8)

    def close(self) -> None:
        self._copies.close()

    def _chosen(self, actions: ActionBatch) -> Sequence[Any]:
        """An action for each copy; that of a copy that decides nothing is in its space, and ignored."""
        build, spec = self._actuator.build, self._actuator.spec
        numbers, choices = actions.continuous.astype(np.float64), actions.discrete.astype(np.int64)
        if len(self._deciding_copies) == len(self._copies):
            return [build(*row) for row in zip(numbers, choices, strict=True)]
        unused = build(np.zeros(spec.continuous_size), np.zeros(spec.discrete_size, np.int64))
        chosen = [unused] * len(self._copies)
        for row, copy in enumerate(self._deciding_copies):
            chosen[copy] = build(numbers[row], choices[row])
        return chosen

    def _deciding(self, seen: Sequence[Seen], rewards: Floats) -> StepBatch:
        spec = self._actuator.spec
        masks = [gym_spaces.allowed_actions(info.get("action_mask"), spec) for _, info in seen]
        return step_batch(
            self._read([observation for observation, _ in seen]),
            float32(rewards),
            agent_ids=self._deciding_copies,
            allowed_actions=np.stack(masks),
        )

    def _terminal(self, step: CopiesStep) -> StepBatch:
        terminated = step.terminated[step.ended]
        return step_batch(
            self._read(step.last),
            float32(step.rewards[step.ended]),
            agent_ids=np.flatnonzero(step.ended),
            allowed_actions=np.ones((len(step.last), self._actuator.spec.mask_size), np.bool_),
            terminated=terminated,
            truncated=~terminated,
        )

    def _read(self, observations: Sequence[Any]) -> list[Observation]:
        return call_guarded(
            self._called, "step()", lambda: [sensor.read_all(observations) for sensor in self._sensors]
        )
