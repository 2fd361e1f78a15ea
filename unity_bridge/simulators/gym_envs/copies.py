"""Copies of one environment side by side, stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Floats
from unity_bridge.simulators.third_party import call_guarded, copy_seed

_T = TypeVar("_T")
_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")

Seen = tuple[Any, Mapping[str, Any]]
"""An observation and its info."""


@dataclass(frozen=True, slots=True)
class CopiesStep:
    """The outcome of one step of N copies."""

    rewards: Floats
    """0 for a copy that only began anew. Shape [N]."""

    terminated: NDArray[np.bool_]
    """Shape [N]."""

    ended: NDArray[np.bool_]
    """Terminated, truncated or both. Shape [N]."""

    last: Sequence[Any]
    """The last observation of each copy that ended, in their order."""

    following: Sequence[Seen | None]
    """What each copy decides on next: after an end the first of its next episode, or None where that comes with the
    next step, whose action it ignores. At least one copy decides."""


class Copies(Protocol):
    """Copies of one environment, wherever they run."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Of a single copy."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Of a single copy."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """As environments have it: ``render_fps``, …"""

    def __len__(self) -> int: ...

    def reset(self, seed: int | None) -> Sequence[Seen]:
        """Begins every copy anew, copy i with seed + 1000 i; None goes on with the random numbers at hand."""

    def step(self, actions: Sequence[Any]) -> CopiesStep:
        """Steps every copy with an action of its own space, those too that ignore it."""

    def render(self) -> Any:
        """What copy 0 draws."""

    def close(self) -> None:
        """Frees what the copies hold."""


class SerialCopies:
    """Environments in this process. The first observation of an episode comes with the last one of the episode before.

    Raises:
        SceneError: whatever an environment raised or returned in another form, in one line.
    """

    def __init__(self, called: str, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        """
        Args:
            called: as the user wrote the environment, for messages.
            envs: at least one; the first one is rendered.
        """
        self._called = called
        self._envs = envs
        self.observation_space: gymnasium.Space[Any] = envs[0].observation_space
        self.action_space: gymnasium.Space[Any] = envs[0].action_space
        self.metadata: Mapping[str, Any] = envs[0].metadata

    def __len__(self) -> int:
        return len(self._envs)

    def reset(self, seed: int | None) -> Sequence[Seen]:
        return [self._reset(i, copy_seed(seed, i)) for i in range(len(self))]

    def step(self, actions: Sequence[Any]) -> CopiesStep:
        results = [self._step(i, action) for i, action in enumerate(actions)]
        rewards = call_guarded(
            self._called, "step()", lambda: np.array([float(result[1]) for result in results])
        )
        terminated = np.array([bool(result[2]) for result in results])
        ended = terminated | np.array([bool(result[3]) for result in results])
        # Copied, because an environment may write its next observation into the same array.
        last = [deepcopy(results[i][0]) for i in np.flatnonzero(ended).tolist()]
        following = [self._reset(i) if ended[i] else (results[i][0], results[i][4]) for i in range(len(self))]
        return CopiesStep(rewards, terminated, ended, last, following)

    def render(self) -> Any:
        return self._envs[0].render()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _reset(self, copy: int, seed: int | None = None) -> Seen:
        return call_guarded(
            self._called, "reset()", lambda: _parts(self._envs[copy].reset(seed=seed), _RESET)
        )

    def _step(self, copy: int, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return call_guarded(self._called, "step()", lambda: _parts(self._envs[copy].step(action), _STEP))


def _parts(returned: _T, expected: tuple[str, ...]) -> _T:
    """Returns what an environment returned, once it is complete: those written for the old Gym return less."""
    if isinstance(returned, tuple) and len(returned) == len(expected) and isinstance(returned[-1], Mapping):
        return returned
    got = f"{len(returned)} of them" if isinstance(returned, tuple) else f"{returned!r:.60}"
    if isinstance(returned, tuple) and len(returned) == len(expected):
        got = f"no dictionary as info but {returned[-1]!r:.60}"
    raise TypeError(f"expected {len(expected)} values to be returned ({', '.join(expected)}), got {got}")
