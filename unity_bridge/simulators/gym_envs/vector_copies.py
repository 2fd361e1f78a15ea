"""Copies that a vector environment steps side by side: Gymnasium's asynchronous one, EnvPool, and their like."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from multiprocessing import connection
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from unity_bridge.simulators.gym_envs.copies import CopiesStep, Seen
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded, copy_seed

_T = TypeVar("_T")
_FINAL = ("final_obs", "final_observation")
"""Where a vector environment leaves last observations, and where those for Gymnasium before 1.0 did."""

_EXIT_S = 5.0
"""How long a process that hung up may take to be gone."""

_CLOSE_S = 1.0
"""How long a step that is under way may take, before its process is ended."""

_NOTHING: Mapping[str, Any] = {}


class VectorCopies:
    """The copies of a vector environment, however it begins them anew.

    ``metadata["autoreset_mode"]`` says how:

    - SAME_STEP: the step that ends an episode returns the next one's first observation, and leaves the last one in
      ``info["final_obs"]``.
    - NEXT_STEP: it returns the last observation; the copy ignores its next action, and that step returns the first
      observation. So nobody decides on the last one, and no reward is taken from the step in between.
    - DISABLED: whoever steps it resets the copies that ended, with ``options={"reset_mask": ...}``.

    Raises:
        SceneError: it does not say how, leaves no last observation, or whatever it raised, in one line.
    """

    def __init__(self, called: str, env: VectorEnv[Any, Any, Any]) -> None:
        """
        Args:
            called: as the user wrote the environment, for messages.
            env: with ``single_observation_space`` and ``single_action_space``.
        """
        self._called = called
        self._env = env
        self._mode = _autoreset_mode(called, env)
        self.observation_space: gymnasium.Space[Any] = env.single_observation_space
        self.action_space: gymnasium.Space[Any] = env.single_action_space
        self.metadata: Mapping[str, Any] = env.metadata
        self._batch = batch_space(env.single_observation_space, env.num_envs)
        self._all = np.ones(env.num_envs, np.bool_)
        self._begins_anew = np.zeros(env.num_envs, np.bool_)
        """Copies whose next step begins their next episode, whatever its action."""

    def __len__(self) -> int:
        return self._env.num_envs

    def reset(self, seed: int | None) -> Sequence[Seen]:
        self._begins_anew[:] = False
        observations, info = self._guard("reset()", lambda: self._env.reset(seed=self._seeds(seed)))
        return [self._seen(i, each, info) for i, each in enumerate(self._each(observations))]

    def step(self, actions: Sequence[Any]) -> CopiesStep:
        batch = self._joined(actions)
        observations, rewards, terminated, truncated, info = self._returned(batch)
        # What a copy returns that only began anew is the first of an episode, and no outcome of anything.
        lives = ~self._begins_anew
        terminated = np.asarray(terminated, np.bool_) & lives
        ended = terminated | (np.asarray(truncated, np.bool_) & lives)
        seen = self._each(observations)
        following: list[Seen | None] = [self._seen(i, each, info) for i, each in enumerate(seen)]
        last: Sequence[Any] = ()
        if ended.any():
            last = self._last(seen, ended, info)
            following = self._after_ends(following, ended, batch)
        self._begins_anew = np.array([each is None for each in following])
        return CopiesStep(
            np.where(lives, np.asarray(rewards, np.float64), 0), terminated, ended, last, following
        )

    def render(self) -> Any:
        """What copy 0 draws, where all of them draw."""
        frames = self._env.render()
        is_batch = isinstance(frames, (tuple, list)) or getattr(frames, "ndim", 0) == 4
        return frames[0] if is_batch and frames is not None and len(frames) else frames

    def close(self) -> None:
        if not isinstance(self._env, AsyncVectorEnv):
            self._env.close()
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
            self._env.close(timeout=_CLOSE_S)
        for process in self._env.processes:
            process.terminate()  # does nothing where it is gone already
        self._env.closed = True

    def _returned(self, batch: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        def step() -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
            returned: tuple[Any, Any, Any, Any, Mapping[str, Any]] = self._env.step(batch)
            if len(returned) != 5:
                raise TypeError(
                    "expected 5 values to be returned (observations, rewards, terminations, truncations, infos), "
                    f"got {len(returned)} of them"
                )
            return returned

        return self._guard("step()", step)

    def _last(self, seen: Sequence[Any], ended: NDArray[np.bool_], info: Mapping[str, Any]) -> list[Any]:
        """The last observations of the copies that ended, in their order."""
        if self._mode is not AutoresetMode.SAME_STEP:
            # Copied, because a reset may write into the same arrays.
            return [deepcopy(seen[i]) for i in np.flatnonzero(ended).tolist()]
        final = next((info[key] for key in _FINAL if key in info), None)
        if final is None:
            raise SceneError(
                f"{self._called}: step() ended an episode and began the next one, but left no last observation; "
                "expected info['final_obs']"
            )
        each = list(final) if isinstance(final, np.ndarray) and final.dtype == object else self._each(final)
        return [each[i] for i in np.flatnonzero(ended).tolist()]

    def _after_ends(
        self, following: Sequence[Seen | None], ended: NDArray[np.bool_], batch: Any
    ) -> list[Seen | None]:
        """What copies decide on next, after some of them ended."""
        if self._mode is AutoresetMode.SAME_STEP:
            return list(following)
        if self._mode is AutoresetMode.NEXT_STEP and not ended.all():
            return [None if over else each for over, each in zip(ended, following, strict=True)]
        if self._mode is AutoresetMode.NEXT_STEP:  # nobody is left to decide: the next step comes at once
            observations, *_, info = self._returned(batch)
        else:
            mask = {"reset_mask": ended.copy()}
            observations, info = self._guard("reset()", lambda: self._env.reset(options=mask))
        first = [self._seen(i, each, info) for i, each in enumerate(self._each(observations))]
        return [
            first[i] if over else each for i, (over, each) in enumerate(zip(ended, following, strict=True))
        ]

    def _seeds(self, seed: int | None) -> Any:
        """A seed for each copy, where the environment takes a list of them."""
        if isinstance(self._env.unwrapped, (AsyncVectorEnv, SyncVectorEnv)):
            return [copy_seed(seed, i) for i in range(len(self))]
        return seed

    def _joined(self, actions: Sequence[Any]) -> Any:
        space = self.action_space
        empty: Any = create_empty_array(space, len(self))
        return concatenate(space, actions, empty)

    def _each(self, observations: Any) -> Sequence[Any]:
        """The observations of all copies one by one, in their order."""
        return self._guard("observations", lambda: list(iterate(self._batch, observations)))

    def _seen(self, copy: int, observation: Any, info: Mapping[str, Any]) -> Seen:
        masks = info.get("action_mask")
        if masks is None or not info.get("_action_mask", self._all)[copy]:
            return observation, _NOTHING
        return observation, {"action_mask": masks[copy]}

    def _guard(self, what: str, call: Callable[[], _T]) -> _T:
        return call_guarded(self._called, what, lambda: self._alive(call))

    def _alive(self, call: Callable[[], _T]) -> _T:
        """Returns what call() returns. Raises SceneError where the process of a copy is gone."""
        try:
            return call()
        except (BrokenPipeError, ConnectionResetError, EOFError):
            processes = getattr(self._env.unwrapped, "processes", ())
            hung_up = connection.wait([process.sentinel for process in processes], _EXIT_S)
            for i, process in enumerate(processes):
                if process.sentinel in hung_up:
                    process.join(_EXIT_S)
                    raise SceneError(
                        f"the process of copy {i} ended by itself, with exit code {process.exitcode}"
                    ) from None
            raise


def _autoreset_mode(called: str, env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    given = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(getattr(given, "value", given))
    except ValueError:
        expected = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise SceneError(
            f"{called}: a vector environment must say in metadata['autoreset_mode'] how its copies begin anew; "
            f"expected one of {expected}, got {given!r}"
        ) from None
