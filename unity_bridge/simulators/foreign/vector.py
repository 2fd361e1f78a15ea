"""Gymnasium's vector environments: copies that are stepped side by side, by Gymnasium, EnvPool, and their like."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from gymnasium.wrappers import TransformObservation
from numpy.typing import NDArray

from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.copies import Row, Rows, copy_seed
from unity_bridge.simulators.foreign.environment import Agent, AgentStep, Environment, copied
from unity_bridge.simulators.foreign.gymnasium import AGENT, MaskInInfo, single_agent
from unity_bridge.simulators.foreign.masks import mask_key, mask_method, masks_by_copy
from unity_bridge.simulators.foreign.state import State
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

_T = TypeVar("_T")
_FINAL = ("final_obs", "final_observation")
"""Keys of a vector environment's final observations, today's and that of Gymnasium before 1.0."""

_EXIT_S = 5.0
"""How long a process that hung up may take to be gone."""

_CLOSE_S = 1.0
"""How long a step that is under way may take, before its process is ended."""


class VectorCopies:
    """The copies of a vector environment, in each of Gymnasium's autoreset modes.

    The environment declares ``metadata["autoreset_mode"]``:

    - SAME_STEP: the step that ends an episode returns the next one's first observation, and leaves the last one in
      ``info["final_obs"]``.
    - NEXT_STEP: it returns the last observation; the copy ignores its next action, and that step returns the first
      observation. So no agent decides on the last one, and no reward is taken from the step in between.
    - DISABLED: the caller resets the copies that ended, with ``options={"reset_mask": ...}``.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], code: ForeignCode) -> None:
        self._vector = env
        self._code = code
        self._mode = _autoreset_mode(code, env)
        self._prepare_copies()
        self.description = single_agent(env.single_observation_space, env.single_action_space, env.metadata)
        self.environment: Environment | None = None
        self._actuator = code.call("spaces", actuator, env.single_action_space)
        self._batch = batch_space(env.single_observation_space, env.num_envs)
        self._begins_anew = np.zeros(env.num_envs, np.bool_)
        """Copies whose next step begins their next episode, whatever its action."""
        self._allowed = self._guard("masks", lambda: mask_method(env))

    def __len__(self) -> int:
        return self._vector.num_envs

    def show(self, state: State) -> None:
        raise NotImplementedError

    def reset(self, seed: int | None) -> Rows:
        self._begins_anew[:] = False
        seen, masks = self._first(seed=self._seeds(seed))
        return [
            Row(i, AgentStep(AGENT, each, mask))
            for i, (each, mask) in enumerate(zip(seen, masks, strict=True))
        ]

    def step(self, actions: Sequence[Mapping[Agent, Any]]) -> tuple[Rows, Rows]:
        batch = self._joined([chosen[AGENT] if chosen else self._actuator.idle() for chosen in actions])
        seen, masks, rewards, terminated, truncated, final = self._step(batch)
        # What a copy returns that only started again is the first of an episode, and no outcome of anything.
        lives = ~self._begins_anew
        rewards = np.where(lives, rewards, 0)
        terminated, truncated = terminated & lives, truncated & lives & ~terminated
        ended = terminated | truncated
        last: Rows = []
        following = list(zip(seen, masks, strict=True))
        rows: Sequence[int] = range(len(self))
        if ended.any():
            last = [
                Row(
                    i,
                    AgentStep(AGENT, each, mask, float(rewards[i]), bool(terminated[i]), bool(truncated[i])),
                )
                for i, (each, mask) in self._last(seen, masks, ended, final).items()
            ]
            rows, following = self._after_ends(following, ended, batch)
        self._begins_anew[:] = True
        self._begins_anew[list(rows)] = False
        return last, [
            Row(i, AgentStep(AGENT, *following[i], 0.0 if ended[i] else float(rewards[i]))) for i in rows
        ]

    def render(self) -> Any:
        """The picture of copy 0, where all copies render."""
        frames = self._code.call("render()", self._vector.render)
        is_batch = isinstance(frames, (tuple, list)) or getattr(frames, "ndim", 0) == 4
        return frames[0] if is_batch and frames is not None and len(frames) else frames

    def close(self) -> None:
        if not isinstance(self._vector, AsyncVectorEnv):
            self._code.close(self._vector.close)
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
            self._vector.close(timeout=_CLOSE_S)
        for process in self._vector.processes:
            process.terminate()  # does nothing where it is gone already
        self._vector.closed = True

    def _prepare_copies(self) -> None:
        """Has copies in this process return new arrays, because in SAME_STEP they are reset before these are read."""
        inner = self._vector.unwrapped
        if isinstance(inner, SyncVectorEnv):
            copies = [MaskInInfo.around(env) for env in inner.envs]
            inner.envs = [TransformObservation(env, copied, env.observation_space) for env in copies]
        elif isinstance(inner, AsyncVectorEnv) and self._mode is AutoresetMode.SAME_STEP:
            self._code.warn(
                "same step",
                "AsyncVectorEnv with AutoresetMode.SAME_STEP keeps an episode's last observation no better than the "
                "environment does; where that writes into one array again and again, use AutoresetMode.NEXT_STEP",
            )

    def _first(self, **how: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """Resets copies. Returns the observations and masks of all."""
        observations, info = self._guard("reset()", lambda: self._vector.reset(**how))
        return self._seen(observations, info)

    def _step(self, batch: Any) -> tuple[Any, ...]:
        """Steps all copies. Returns observations, masks, rewards and ends by copy, and in SAME_STEP the final ones."""

        def step() -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
            returned: tuple[Any, Any, Any, Any, Mapping[str, Any]] = self._vector.step(batch)
            if len(returned) != 5:
                raise TypeError(
                    "expected 5 values to be returned (observations, rewards, terminations, truncations, infos), "
                    f"got {len(returned)} of them"
                )
            return returned

        observations, rewards, terminated, truncated, info = self._guard("step()", step)
        ends = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        earned = np.array(rewards, np.float64)
        last = self._mode is not AutoresetMode.SAME_STEP and bool(ends[0].all())
        final = None
        if self._mode is AutoresetMode.SAME_STEP:
            seen = next((copied(info[key]) for key in _FINAL if key in info), None)
            final = seen, self._masks_of(info.get("final_info")) or [None] * len(self)
        return *self._seen(observations, info, asks=not last), earned, *ends, final

    def _seen(
        self, observations: Any, info: Mapping[str, Any], *, asks: bool = True
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """The observations and masks of all copies, copied before the next call of the environment.

        asks: whether the environment's method is asked for masks that are not in the info.
        """
        each = self._each(copied(observations))
        masks = self._masks_of(info)
        if masks is None and asks and self._allowed is not None:
            masks = masks_by_copy(copied(self._guard("masks", self._allowed)), None, len(self))
        return each, masks or [None] * len(self)

    def _masks_of(self, info: Any) -> Sequence[Any] | None:
        """The masks of all copies in an info, copied; None without one."""
        key = mask_key(info, self._code)
        return None if key is None else masks_by_copy(copied(info[key]), info.get(f"_{key}"), len(self))

    def _last(
        self, seen: Sequence[Any], masks: Sequence[Any], ended: NDArray[np.bool_], final: Any
    ) -> dict[int, tuple[Any, Any]]:
        """The last observations and masks of the copies that ended, by copy."""
        copies = np.flatnonzero(ended).tolist()
        if self._mode is not AutoresetMode.SAME_STEP:
            return {i: (seen[i], masks[i]) for i in copies}
        seen, masks = final
        if seen is None:
            raise self._code.error(
                "step() ended an episode and began the next one, but left no last observation; "
                "expected info['final_obs']"
            )
        each = seen if isinstance(seen, tuple) else self._each(seen)
        return {i: (each[i], masks[i]) for i in copies}

    def _after_ends(
        self, following: list[tuple[Any, Any]], ended: NDArray[np.bool_], batch: Any
    ) -> tuple[Sequence[int], list[tuple[Any, Any]]]:
        """The copies that decide next, and the observation and mask of each copy, after some of them ended."""
        everybody = range(len(self))
        if self._mode is AutoresetMode.SAME_STEP:
            return everybody, following
        if self._mode is AutoresetMode.NEXT_STEP and not ended.all():
            return np.flatnonzero(~ended).tolist(), following
        if self._mode is AutoresetMode.NEXT_STEP:  # no copy is left to decide: the next step comes at once
            seen, masks, *_ = self._step(batch)
        else:
            seen, masks = self._first(options={"reset_mask": ended.copy()})
        first = list(zip(seen, masks, strict=True))
        return everybody, [first[i] if ended[i] else following[i] for i in everybody]

    def _seeds(self, seed: int | None) -> Any:
        """A seed for each copy, where the environment takes a list of them."""
        if isinstance(self._vector.unwrapped, (AsyncVectorEnv, SyncVectorEnv)):
            return [copy_seed(seed, i) for i in range(len(self))]
        return seed

    def _joined(self, actions: Sequence[Any]) -> Any:
        space = self._vector.single_action_space
        empty: Any = create_empty_array(space, len(self))
        return concatenate(space, actions, empty)

    def _each(self, observations: Any) -> Sequence[Any]:
        """The observations of all copies one by one, in their order."""
        return self._guard("observations", lambda: list(iterate(self._batch, observations)))

    def _guard(self, what: str, call: Callable[[], _T]) -> _T:
        return self._code.call(what, lambda: self._alive(call))

    def _alive(self, call: Callable[[], _T]) -> _T:
        """Returns what call() returns. Raises SceneError where the process of a copy is gone."""
        try:
            return call()
        except (BrokenPipeError, ConnectionResetError, EOFError):
            processes = getattr(self._vector.unwrapped, "processes", ())
            hung_up = connection.wait([process.sentinel for process in processes], _EXIT_S)
            for i, process in enumerate(processes):
                if process.sentinel in hung_up:
                    process.join(_EXIT_S)
                    raise SceneError(
                        f"the process of copy {i} ended by itself, with exit code {process.exitcode}"
                    ) from None
            raise


def _autoreset_mode(code: ForeignCode, env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    given = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(getattr(given, "value", given))
    except ValueError:
        expected = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise code.error(
            f"a vector environment must say in metadata['autoreset_mode'] how its copies are reset; "
            f"expected one of {expected}, got {given!r}"
        ) from None
