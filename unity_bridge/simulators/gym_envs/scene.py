"""``gym:ID``: copies of one Gymnasium environment as the agents of one behavior."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.gym_envs import spaces as gym_spaces
from unity_bridge.simulators.scene import SceneError, Steps, concatenate, step_batch
from unity_bridge.simulators.third_party import call_guarded, copy_seed, float32
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch

_T = TypeVar("_T")
_DEFAULT_FPS = 30
_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")


class GymScene:
    """N copies of an environment, each an agent that decides at every step.

    The behavior is called like the environment without its module and namespace: ``ALE/Pong-v5`` is
    ``Pong-v5``. Spaces become sensors and actions as ``gym_envs.spaces`` says. ``terminated`` and ``truncated``
    stay what they are (both at once is terminated); an episode's last observation goes into its terminal row
    and the next one's first into the deciding row of the same message. ``info["action_mask"]`` is
    respected where it fits. Copy i is seeded with seed + 1000 i.

    Numbers too large for float32 become the largest there is; infinities and NaN are passed on, for the
    trainer to refuse by name.

    Raises:
        SceneError: an unknown environment, a space that is not built yet, or whatever the environment raised.
    """

    def __init__(
        self, env_id: str, agents: int = 1, kwargs: Mapping[str, Any] | None = None, *, rendered: bool = False
    ) -> None:
        self._env_id = env_id
        self._envs = [self._make(kwargs or {}, rendered=rendered and i == 0) for i in range(agents)]
        self._require_one_agent()
        self._agent_ids = np.arange(agents, dtype=np.int64)
        self._behavior = f"{env_id.split(':')[-1].split('/')[-1]}?team=0"
        self._sensors = self._guard("spaces", lambda: gym_spaces.sensors(self._envs[0].observation_space))
        self._actuator = self._guard("spaces", lambda: gym_spaces.actuator(self._envs[0].action_space))

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        specs = tuple(sensor.spec for sensor in self._sensors)
        return {self._behavior: BehaviorSpec(specs, self._actuator.spec)}

    @property
    def frame_s(self) -> float:
        return 1 / (self._envs[0].metadata.get("render_fps") or _DEFAULT_FPS)

    def reset(self, seed: int | None = None) -> Steps:
        first = [self._reset(i, copy_seed(seed, i)) for i in range(len(self._envs))]
        return {self._behavior: self._deciding(first, np.zeros(len(first)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        results = [self._step(i, actions[self._behavior]) for i in range(len(self._envs))]
        rewards = self._guard("step()", lambda: np.array([float(result[1]) for result in results]))
        terminated = np.array([bool(result[2]) for result in results])
        ended = terminated | np.array([bool(result[3]) for result in results])
        seen = [(result[0], result[4]) for result in results]
        if not ended.any():
            return {self._behavior: self._deciding(seen, rewards)}
        terminal = self._terminal([seen[i][0] for i in np.flatnonzero(ended)], rewards, ended, terminated)
        following = [self._reset(i) if ended[i] else seen[i] for i in range(len(self._envs))]
        return {self._behavior: concatenate(terminal, self._deciding(following, np.where(ended, 0, rewards)))}

    def render(self) -> NDArray[np.uint8]:
        """Renders copy 0."""
        frame = self._guard("render()", self._envs[0].render)
        if not isinstance(frame, np.ndarray):
            raise SceneError(f"gym:{self._env_id}: render() gave no picture but {frame!r}")
        return np.asarray(frame, np.uint8)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _make(self, kwargs: Mapping[str, Any], *, rendered: bool) -> gymnasium.Env[Any, Any]:
        mode: dict[str, Any] = {"render_mode": "rgb_array"} if rendered else {}
        return self._guard(
            "make()", lambda: gymnasium.make(self._env_id, disable_env_checker=True, **mode, **kwargs)
        )

    def _require_one_agent(self) -> None:
        env = self._envs[0]
        agents = getattr(env.unwrapped, "n_agents", 1)
        if (
            isinstance(env.action_space, gymnasium.spaces.Tuple)
            and len(env.action_space.spaces) == agents > 1
        ):
            raise SceneError(
                f"gym:{self._env_id}: an environment of {agents} agents; expected --env=gymma:{self._env_id}"
            )

    def _reset(self, copy: int, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return self._guard("reset()", lambda: _parts(self._envs[copy].reset(seed=seed), _RESET))

    def _step(self, copy: int, actions: ActionBatch) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        action = self._actuator.build(
            actions.continuous[copy].astype(np.float64), actions.discrete[copy].astype(np.int64)
        )
        return self._guard("step()", lambda: _parts(self._envs[copy].step(action), _STEP))

    def _deciding(
        self, seen: Sequence[tuple[Any, dict[str, Any]]], rewards: NDArray[np.float64]
    ) -> StepBatch:
        spec = self._actuator.spec
        masks = [gym_spaces.allowed_actions(info.get("action_mask"), spec) for _, info in seen]
        return step_batch(
            self._read([observation for observation, _ in seen]),
            float32(rewards),
            agent_ids=self._agent_ids,
            allowed_actions=np.stack(masks),
        )

    def _terminal(
        self,
        last: Sequence[Any],
        rewards: NDArray[np.float64],
        ended: NDArray[np.bool_],
        terminated: NDArray[np.bool_],
    ) -> StepBatch:
        return step_batch(
            self._read(last),
            float32(rewards[ended]),
            agent_ids=self._agent_ids[ended],
            allowed_actions=np.ones((len(last), self._actuator.spec.mask_size), np.bool_),
            terminated=terminated[ended],
            truncated=~terminated[ended],
        )

    def _read(self, observations: Sequence[Any]) -> list[Observation]:
        return self._guard("step()", lambda: [sensor.read_all(observations) for sensor in self._sensors])

    def _guard(self, what: str, call: Callable[[], _T]) -> _T:
        return call_guarded(f"gym:{self._env_id}", what, call)


def _parts(returned: _T, expected: tuple[str, ...]) -> _T:
    """Returns what an environment returned, once it is complete: those written for the old Gym return less."""
    if isinstance(returned, tuple) and len(returned) == len(expected) and isinstance(returned[-1], Mapping):
        return returned
    got = f"{len(returned)} of them" if isinstance(returned, tuple) else f"{returned!r:.60}"
    if isinstance(returned, tuple) and len(returned) == len(expected):
        got = f"no dictionary as info but {returned[-1]!r:.60}"
    raise TypeError(f"expected {len(expected)} values to be returned ({', '.join(expected)}), got {got}")
