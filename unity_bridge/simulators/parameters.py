"""Environment parameters, as a scene reads them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from unity_bridge.arrays import Floats
from unity_bridge.errors import WireError
from unity_bridge.names import did_you_mean
from unity_bridge.side_channels import (
    EnvironmentParameterMessage,
    FloatParameter,
    GaussianSampler,
    MultiRangeUniformSampler,
    UniformSampler,
)
from unity_bridge.simulators.scene import SceneError

Sampler = Callable[[int], Floats]
"""A function that draws a number of values independently."""


class EnvironmentParameters:
    """Parameters by name: numbers, or samplers that draw again for each reading.

    A sampler's draws follow from the seed that the trainer sent, and begin again when the trainer sends the sampler
    again, as in Unity. Only the numbers differ, because NumPy draws them.
    """

    def __init__(self, fixed: Mapping[str, float] | None = None) -> None:
        """
        Args:
            fixed: values that the user of the simulator set. The trainer cannot change them.
        """
        self.fixed = frozenset(fixed or {})
        """Names of the fixed parameters."""
        self._samplers: dict[str, Sampler] = {
            name: _sampler(FloatParameter(name, value)) for name, value in (fixed or {}).items()
        }
        self._env = ""
        self._known: Collection[str] | None = None
        """The names that the scene reads; None if that is not known."""

    def declare(self, env: str, names: Collection[str]) -> None:
        """Declares the names that a scene reads; until then it may read any. Raises SceneError if another is fixed."""
        self._env, self._known = env, names
        for problem in filter(None, map(self.problem, sorted(self.fixed))):
            raise SceneError(problem)

    def problem(self, name: str) -> str:
        """Describes the problem of a parameter that the scene does not read; empty for others."""
        if self._known is None or name in self._known:
            return ""
        expected = f"expected one of {', '.join(sorted(self._known))}" if self._known else "it has none"
        return f"{self._env}: no environment parameter '{name}'; {expected}{did_you_mean(name, self._known)}"

    def set(self, message: EnvironmentParameterMessage) -> None:
        """Sets a parameter as the trainer says, unless it is fixed.

        Raises:
            WireError: a sampler without intervals.
        """
        if message.name not in self.fixed:
            self._samplers[message.name] = _sampler(message)

    def read(self, name: str, default: float, count: int) -> Floats:
        """Reads a parameter for each of ``count`` agents; the default if it was not set. Shape [count]."""
        draw = self._samplers.get(name)
        return np.full(count, default) if draw is None else draw(count)


def _sampler(message: EnvironmentParameterMessage) -> Sampler:
    if isinstance(message, FloatParameter):
        value = message.value
        return lambda count: np.full(count, value)
    rng = np.random.default_rng(message.seed % 2**32)
    match message:
        case UniformSampler(min_value=low, max_value=high):
            return lambda count: low + (high - low) * rng.random(count)
        case GaussianSampler(mean=mean, st_dev=st_dev):
            return lambda count: mean + st_dev * rng.standard_normal(count)
        case MultiRangeUniformSampler():
            return _multi_range(message, rng)


def _multi_range(message: MultiRangeUniformSampler, rng: np.random.Generator) -> Sampler:
    if not message.intervals:
        raise WireError(
            f"environment parameter '{message.name}': expected intervals to sample from, got none"
        )
    low, high = np.array(message.intervals).T
    ends = np.cumsum(high - low)

    def draw(count: int) -> Floats:
        # A place on all the intervals laid end to end: long ones are hit more often.
        which = np.searchsorted(ends, ends[-1] * rng.random(count), side="right").clip(max=len(ends) - 1)
        values: Floats = low[which] + (high - low)[which] * rng.random(count)
        return values

    return draw
