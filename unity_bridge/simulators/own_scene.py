"""Scenes that users write in Python: each of their messages is checked, and an error names the mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.codec.step_encoder import LARGEST_INT32
from unity_bridge.simulators.scene import Scene, SceneError, copies_of
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch, Steps

_FRAME_S = 0.1
_METHODS = {"reset": "reset(seed)", "step": "step(actions)"}
_OF_OTHERS = ("observation_space", "action_space", "possible_agents")
"""Attributes of environments of Gymnasium and PettingZoo, which are no scenes."""


def is_scene(made: object) -> bool:
    """Whether an object is meant as a scene: it has ``behaviors``, and no spaces."""
    return hasattr(made, "behaviors") and not any(hasattr(made, name) for name in _OF_OTHERS)


def own_scene(code: ForeignCode, scene: Any) -> Scene:
    """Returns a user's scene with checks of everything that it returns.

    Only ``behaviors``, ``reset`` and ``step`` are required of it.

    Raises:
        SceneError: a method is missing, or ``behaviors`` is no dictionary of specs.
    """
    for name, call in _METHODS.items():
        if not callable(getattr(scene, name, None)):
            raise code.error(
                f"{type(scene).__name__} has no method {call}; a scene needs behaviors, reset and step"
            )
    behaviors = scene.behaviors
    if not isinstance(behaviors, Mapping) or not behaviors:
        raise code.error(f"behaviors: expected a dictionary of BehaviorSpec by name, got {behaviors!r:.80}")
    for name, spec in behaviors.items():
        if not isinstance(name, str) or not isinstance(spec, BehaviorSpec):
            raise code.error(f"behaviors: expected a BehaviorSpec by name, got {name!r:.40}: {spec!r:.80}")
    made = (_OwnDemonstrator if hasattr(scene, "expert") else _OwnScene)(code, scene)
    code.hold([scene])
    return made


class _OwnScene:
    """A user's scene behind checks."""

    def __init__(self, code: ForeignCode, scene: Any) -> None:
        self._code = code
        self._scene = scene
        self.behaviors: Mapping[str, BehaviorSpec] = dict(scene.behaviors)
        self.frame_s = float(getattr(scene, "frame_s", _FRAME_S))
        self.copies = copies_of(scene)
        self._alive: dict[str, NDArray[np.int64]] = {}
        """Agents whose episode continues, by behavior."""

    def reset(self, seed: int | None = None) -> Steps:
        self._alive = {}
        return self._checked("reset()", self._code.call("reset()", self._scene.reset, seed))

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        return self._checked("step()", self._code.call("step()", self._scene.step, actions))

    def render(self) -> NDArray[np.uint8]:
        if not callable(getattr(self._scene, "render", None)):
            raise self._code.error(
                f"{type(self._scene).__name__} has no method render(), which films and pages need: expected one that "
                "returns bytes of shape (height, width, 3)"
            )
        picture: NDArray[np.uint8] = self._code.call("render()", self._scene.render)
        return picture

    def close(self) -> None:
        self._code.release()
        if callable(close := getattr(self._scene, "close", None)):
            self._code.close(close)

    def _checked(self, where: str, steps: Any) -> Steps:
        """Returns what a method returned. Raises SceneError where it breaks the interface."""
        try:
            if not isinstance(steps, Mapping):
                raise _Wrong(f"expected a dictionary of StepBatch by behavior, got {type(steps).__name__}")
            for name, batch in steps.items():
                if name not in self.behaviors:
                    known = ", ".join(f"'{each}'" for each in self.behaviors)
                    raise _Wrong(f"behavior {name!r:.80} is not in behaviors, which has {known}")
                self._check_batch(name, batch)
        except _Wrong as error:
            raise self._code.error(f"{where}: {error}") from None
        return steps

    def _check_batch(self, name: str, batch: Any) -> None:
        if not isinstance(batch, StepBatch):
            raise _Wrong(
                f"behavior '{name}': expected a StepBatch, as step_batch() makes one, got {type(batch).__name__}"
            )
        spec, rows, what = self.behaviors[name], len(batch), f"behavior '{name}'"
        if len(batch.observations) != len(spec.observation_specs):
            sensors = ", ".join(f"'{sensor.name}'" for sensor in spec.observation_specs)
            raise _Wrong(
                f"{what}: expected an array for each sensor ({sensors}), got {len(batch.observations)}"
            )
        for sensor, values in zip(spec.observation_specs, batch.observations, strict=True):
            kinds = ("float32", "uint8") if sensor.is_picture else ("float32",)
            _require(f"{what}: sensor '{sensor.name}'", values, (rows, *sensor.shape), kinds)
        for column in ("agent_ids", "group_ids"):
            ids = getattr(batch, column)
            _require(f"{what}: {column}", ids, (rows,), ("int64",))
            if ((ids < 0) | (ids > LARGEST_INT32)).any():
                meaning = "; 0 is no group" if column == "group_ids" else ""
                odd = ids[(ids < 0) | (ids > LARGEST_INT32)][0]
                raise _Wrong(
                    f"{what}: {column}: expected numbers from 0 to {LARGEST_INT32}{meaning}, got {odd}"
                )
        for column in ("rewards", "group_rewards"):
            values = getattr(batch, column)
            _require(f"{what}: {column}", values, (rows,), ("float32",))
            if not np.isfinite(values).all():
                row = int(np.flatnonzero(~np.isfinite(values))[0])
                agent = batch.agent_ids[row]
                raise _Wrong(
                    f"{what}: {column} of agent {agent}: expected a finite number, got {values[row]}"
                )
        for column in ("terminated", "truncated"):
            _require(f"{what}: {column}", getattr(batch, column), (rows,), ("bool",))
        masks = batch.allowed_actions
        if masks.shape != (rows, 0):  # which is none: everything is allowed
            _require(f"{what}: allowed_actions", masks, (rows, spec.action_spec.mask_size), ("bool",))
        self._check_agents(name, batch)

    def _check_agents(self, name: str, batch: StepBatch) -> None:
        """Follows the episodes of agents: an agent ends once, and waits for one action at a time."""
        ended, waiting = batch.agent_ids[: batch.num_terminal], batch.agent_ids[batch.num_terminal :]
        for ids, doing in ((ended, "ends"), (waiting, "waits for an action")):
            found, counts = np.unique(ids, return_counts=True)
            if (counts > 1).any():
                twice = found[counts > 1][0]
                last_row = "" if ids is ended else ", or its last row needs terminated or truncated"
                raise _Wrong(
                    f"behavior '{name}': agent {twice} {doing} in two rows of one message; each agent needs an id of "
                    f"its own{last_row}"
                )
        alive = self._alive.get(name, np.empty(0, np.int64))
        if (unknown := ended[~np.isin(ended, alive)]).size:
            raise _Wrong(
                f"behavior '{name}': agent {unknown[0]} ends, but it has no episode: it ended before, or never began. "
                "A row that waits for an action begins the next one"
            )
        self._alive[name] = np.union1d(alive[~np.isin(alive, ended)], waiting)


class _OwnDemonstrator(_OwnScene):
    """A user's scene with an expert."""

    def expert(self) -> Mapping[str, ActionBatch]:
        actions: Mapping[str, ActionBatch] = self._code.call("expert()", self._scene.expert)
        return actions


class _Wrong(SceneError):
    """A mistake in the steps of a scene, without the names of the scene and the method."""


def _require(what: str, values: Any, shape: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    """Raises _Wrong unless ``values`` is an array of this shape and one of these dtypes."""
    if not isinstance(values, np.ndarray):
        raise _Wrong(f"{what}: expected an array of shape {shape}, got {type(values).__name__}")
    if values.shape != shape:
        raise _Wrong(f"{what}: expected shape {shape}, got {values.shape}")
    if values.dtype.name not in kinds:
        convert = f".astype({'bool' if kinds[0] == 'bool' else f'np.{kinds[0]}'})"
        raise _Wrong(f"{what}: expected {' or '.join(kinds)}, got {values.dtype.name}; {convert} converts it")
