"""Goal environments of Gymnasium: the reward function of an environment, for goals that it did not pursue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats, Floats32
from unity_bridge.simulators.foreign.gymnasium import GymnasiumEnvironment
from unity_bridge.simulators.foreign.scene import ForeignScene
from unity_bridge.simulators.foreign.spaces import is_picture
from unity_bridge.simulators.scene import Scene
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import ACHIEVED_GOAL, DESIRED_GOAL

_PROBED_STEPS = 8


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
        achieved, desired, paid = code.call("trying compute_reward", _steps, env)
        self._reward = _GoalFunction("compute_reward", reward, code)
        computed = self._reward.one_by_one(achieved, desired)
        different = np.flatnonzero(~np.isclose(computed, paid, rtol=1e-4, atol=1e-5))
        if len(different):
            k = different[0]
            raise code.error(
                f"expected compute_reward(achieved_goal, desired_goal, {{}}) to return what step() pays, got "
                f"{computed[k]:g} where it paid {paid[k]:g}"
            )
        # With the goals that were achieved as desired ones, most functions have more than one value.
        probes = np.concatenate([achieved, achieved]), np.concatenate([desired, achieved])
        self._reward.try_batches(*probes)
        terminated = _attribute(env, "compute_terminated")
        self._terminated = None
        if terminated is not None:
            self._terminated = _GoalFunction("compute_terminated", terminated, code)
            self._terminated.try_batches(*probes)

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

    def _goals(self, flat: Floats32) -> NDArray[Any]:
        """Goals as members of the environment's space. Shape [N, size] to [N, *space.shape]."""
        return flat.reshape(len(flat), *self._space.shape).astype(self._space.dtype)


class _GoalFunction:
    """A function of goals that is called once for N steps if it can be, as in Stable-Baselines3; else for each."""

    def __init__(self, name: str, function: Callable[..., Any], code: ForeignCode) -> None:
        self._name = name
        self._function = function
        self._code = code
        self._takes_batches = False

    def __call__(self, achieved: NDArray[Any], desired: NDArray[Any]) -> Floats:
        """Values of N steps, [N]."""
        if not self._takes_batches:
            return self.one_by_one(achieved, desired)
        return self._code.call(self._name, self._batch, achieved, desired)

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

    def try_batches(self, achieved: NDArray[Any], desired: NDArray[Any]) -> None:
        """Checks whether one call for all steps returns the same rewards as a call for each step."""
        expected = self.one_by_one(achieved, desired)
        try:
            values = self._batch(achieved, desired)
        except Exception:  # whatever a function raises that takes single goals alone
            return
        self._takes_batches = values.shape == expected.shape and np.allclose(values, expected)

    def _batch(self, achieved: NDArray[Any], desired: NDArray[Any]) -> Floats:
        infos: list[dict[str, Any]] = [{} for _ in range(len(achieved))]
        return np.asarray(self._function(achieved, desired, infos), np.float64)


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


def _steps(env: gymnasium.Env[Any, Any]) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """Returns the achieved goals, the desired goals and the rewards of a few random steps."""
    env.action_space.seed(0)
    seed, has_ended = 0, True
    achieved, desired, paid = [], [], []
    for _ in range(_PROBED_STEPS):
        if has_ended:
            env.reset(seed=seed)
            seed += 1
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        has_ended = terminated or truncated
        achieved.append(np.array(observation[ACHIEVED_GOAL]))
        desired.append(np.array(observation[DESIRED_GOAL]))
        paid.append(float(reward))
    return np.stack(achieved), np.stack(desired), np.array(paid, np.float64)
