"""Goal environments of Gymnasium: the reward function of an environment, for goals that it did not pursue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats, Floats32, Rows
from unity_bridge.simulators.foreign.gymnasium import GymnasiumEnvironment
from unity_bridge.simulators.foreign.masks import MASK
from unity_bridge.simulators.foreign.scene import ForeignScene
from unity_bridge.simulators.foreign.spaces import is_picture
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import ACHIEVED_GOAL, DESIRED_GOAL

_PROBED_STEPS = 8
_COMPARED_WHOLE = 4
"""Calls for several goals all of whose values are compared with calls for each."""
_TOLERANCE = 1e-4, 1e-5
"""Relative and absolute difference up to which a reward counts as the same."""


class GoalEnvironment:
    """An environment whose ``compute_reward(achieved_goal, desired_goal, info)`` pays what ``step()`` pays.

    ``compute_terminated``, where the environment has it, says whether a step ends the task. Goals come as the sensors
    show them, flat. ``info`` is an empty dictionary for each step.
    """

    def __init__(self, scene: Scene, code: ForeignCode) -> None:
        """Tries the functions on a few steps. Raises SceneError where it is no goal environment."""
        self._scene = scene
        environment = scene.environment if isinstance(scene, ForeignScene) else None
        if not isinstance(environment, GymnasiumEnvironment):
            raise code.error("expected a gymnasium.Env with goals, of one agent; it is no such environment")
        env = environment.env
        self._space = _goal_space(env.observation_space, code)
        reward = _attribute(env, "compute_reward")
        if reward is None:
            raise code.error(
                "expected a method compute_reward(achieved_goal, desired_goal, info), it has none"
            )
        self._code = code
        self._reward = _GoalFunction("compute_reward", reward, code)
        achieved, desired, paid = code.call("trying compute_reward", _steps, env)
        wrong = self._mismatch(achieved, desired, paid)
        # Rewards may be rare: step() is told that it achieved its goal, if it asks compute_reward.
        with _always_achieved(env, reward):
            tried, missed, success = code.call("trying compute_reward", _steps, env)
        rows = self._reward.differing(tried, missed, success)
        if wrong := wrong or self._mismatch(tried[rows], tried[rows], success[rows]):
            raise wrong
        terminated = _attribute(env, "compute_terminated")
        self._terminated = terminated and _GoalFunction("compute_terminated", terminated, code)

    def mismatch(self, achieved: Floats32, desired: Floats32, paid: Floats32) -> SceneError | None:
        """Returns an error where ``compute_reward`` does not return what N steps paid. Shapes as below."""
        return self._mismatch(self._goals(achieved), self._goals(desired), paid)

    def rewards(self, achieved: Floats32, desired: Floats32) -> Floats32:
        """Rewards of N steps. Shapes [N, size] to [N]. Raises SceneError where the function does."""
        return self._reward(self._goals(achieved), self._goals(desired)).astype(np.float32)

    def terminated(self, achieved: Floats32, desired: Floats32) -> Bools | None:
        """Whether each of N steps ends the task; None where the environment does not say. Shapes as above."""
        if self._terminated is None:
            return None
        ended: Bools = self._terminated(self._goals(achieved), self._goals(desired)) != 0.0
        return ended

    def close(self) -> None:
        """Closes the environment."""
        self._scene.close()

    def _mismatch(
        self, achieved: NDArray[Any], desired: NDArray[Any], paid: Floats | Floats32
    ) -> SceneError | None:
        rows = self._reward.differing(achieved, desired, paid)[:1]
        if not len(rows):
            return None
        return self._code.error(
            f"expected compute_reward(achieved_goal, desired_goal, {{}}) to return what step() pays, got "
            f"{self._reward(achieved[rows], desired[rows])[0]:g} where it paid {paid[rows][0]:g}"
        )

    def _goals(self, flat: Floats32) -> NDArray[Any]:
        """Goals as members of the environment's space. Shape [N, size] to [N, *space.shape]."""
        return flat.reshape(len(flat), *self._space.shape).astype(self._space.dtype)


class _GoalFunction:
    """A function of goals that is called once for N steps while it can be, as in Stable-Baselines3; else for each."""

    def __init__(self, name: str, function: Callable[..., Any], code: ForeignCode) -> None:
        self._name = name
        self._function = function
        self._code = code
        self._takes_batches = True
        self._batches = 0

    def __call__(self, achieved: NDArray[Any], desired: NDArray[Any]) -> Floats:
        """Values of N steps, [N]. Those of a call for all are compared with calls for each: all at first, then some."""
        if not self._takes_batches or not len(achieved):
            return self.one_by_one(achieved, desired)
        infos: list[dict[str, Any]] = [{} for _ in achieved]
        try:
            values = np.asarray(self._function(achieved, desired, infos), np.float64)
        except Exception:  # whatever a function raises that takes single goals alone
            values = np.zeros(0)
        if values.shape == (len(achieved),):
            self._batches += 1
            some = [int(values.argmin()), int(values.argmax()), self._batches % len(values)]
            rows = np.array(some if self._batches > _COMPARED_WHOLE else range(len(values)))
            if np.allclose(values[rows], self.one_by_one(achieved[rows], desired[rows])):
                return values
        self._takes_batches = False
        if self._batches > 1:
            self._code.warn(
                self._name, f"{self._name} returns for {len(achieved)} goals other values than for each. It is called "
                "for each from now on.",
            )  # fmt: skip
        return self.one_by_one(achieved, desired)

    def differing(self, achieved: NDArray[Any], desired: NDArray[Any], values: Floats | Floats32) -> Rows:
        """The rows where the function has another value, even with goals that are rounded differently."""
        rows = np.flatnonzero(~np.isclose(self(achieved, desired), values, *_TOLERANCE))
        ours, goals, values = achieved[rows], desired[rows], values[rows]
        step = np.zeros(1)
        if np.issubdtype(ours.dtype, np.floating):
            size = np.maximum(np.abs(ours), np.abs(goals)).astype(np.float32)
            step = 4 * np.spacing(size) * np.where(goals < ours, -1, 1)
        near = [self((ours + each).astype(ours.dtype), goals) for each in (step, -step)]
        slack = _TOLERANCE[1] + _TOLERANCE[0] * np.abs(values)
        differing: Rows = rows[
            (values < np.min(near, axis=0) - slack) | (values > np.max(near, axis=0) + slack)
        ]
        return differing

    def one_by_one(self, achieved: NDArray[Any], desired: NDArray[Any]) -> Floats:
        """Values of N steps by a call for each, [N]."""
        call = self._code.call
        values = [
            np.asarray(call(self._name, self._function, *goals, {}))
            for goals in zip(achieved, desired, strict=True)
        ]
        for value in values:
            if value.size != 1:
                raise self._code.error(f"expected {self._name} to return a number, got shape {value.shape}")
        return np.array([value.item() for value in values], np.float64)


def _goal_space(space: Any, code: ForeignCode) -> spaces.Box | spaces.MultiBinary:
    """The space of goals. Raises SceneError where an environment has none of numbers."""
    members = space.spaces if isinstance(space, spaces.Dict) else {}
    achieved, desired = members.get(ACHIEVED_GOAL), members.get(DESIRED_GOAL)
    if not (
        isinstance(achieved, spaces.Box | spaces.MultiBinary)
        and isinstance(desired, type(achieved))
        and achieved.shape == desired.shape
        and not (isinstance(achieved, spaces.Box) and is_picture(achieved))
    ):
        got = " ".join(f"{space}".split())
        raise code.error(
            f"expected observations in a Dict with '{ACHIEVED_GOAL}' and '{DESIRED_GOAL}', each a Box or a MultiBinary "
            f"of one shape and no picture, got {got:.200}"
        )
    return achieved


def _attribute(env: gymnasium.Env[Any, Any], name: str) -> Any:
    """An attribute of the environment or of one within it; None where there is none."""
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return None


@contextmanager
def _always_achieved(env: gymnasium.Env[Any, Any], reward: Callable[..., Any]) -> Iterator[None]:
    """A context in which the environment itself gets rewards of achieved goals from ``compute_reward``."""
    owner: Any = getattr(reward, "__self__", env.unwrapped)
    with suppress(AttributeError):  # of an object of fixed attributes
        owner.compute_reward = lambda *given, **named: reward(
            *(given[:1] * 2 + given[2:] if len(given) > 1 else given), **named
        )
    try:
        yield
    finally:
        with suppress(AttributeError):
            owner.compute_reward = reward


def _steps(env: gymnasium.Env[Any, Any]) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """Returns the achieved goals, the desired goals and the rewards of a few random steps."""
    env.action_space.seed(0)
    seed, has_ended = 0, True
    achieved, desired, paid = [], [], []
    for _ in range(_PROBED_STEPS):
        if has_ended:
            observation, info = env.reset(seed=seed)
            seed += 1
        mask = {**observation, **info}.get(MASK)
        is_masked = mask is not None and isinstance(env.action_space, spaces.Discrete)
        action = env.action_space.sample(np.array(mask, np.int8) if is_masked else None)
        observation, reward, terminated, truncated, info = env.step(action)
        has_ended = terminated or truncated
        achieved.append(np.array(observation[ACHIEVED_GOAL]))
        desired.append(np.array(observation[DESIRED_GOAL]))
        paid.append(float(reward))
    return np.stack(achieved), np.stack(desired), np.array(paid, np.float64)
