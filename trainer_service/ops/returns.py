"""Advantages and returns of trajectories that never cross an episode end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyFloats = NDArray[np.floating[Any]]


def ragged_generalized_advantage(
    rewards: AnyFloats,
    values: AnyFloats,
    bootstrap_value: AnyFloats,
    lengths: NDArray[np.int64],
    *,
    discount: float | AnyFloats,
    gae_lambda: float,
    durations: NDArray[np.float64] | None = None,
) -> AnyFloats:
    """Generalized advantage estimates, eq. 16 of Schulman et al. 2016 (arXiv:1506.02438).

        δ_t = r_t + γ V(s_{t+1}) − V(s_t)
        Â_t = δ_t + γλ Â_{t+1},    Â_T = 0

    Of P concatenated trajectories of any length, S steps in total. None crosses an episode's end, so no masks are
    needed.

    Args:
        rewards: r_t, shape [S], or [S, signals] like all that follow.
        values: V(s_t), shape [S].
        bootstrap_value: V(s_T) of each trajectory, or 0 where the episode terminated. Shape [P].
        lengths: steps of each trajectory, at least one, in order, summing to S. Shape [P].
        discount: γ, per decision; one for each signal or for all.
        gae_lambda: λ; 0 gives one-step TD errors, 1 gives Monte Carlo returns minus V.
        durations: Δ_t of each step, for γ^Δ_t and λ^Δ_t in the place of γ and λ; None for 1. Shape [S].

    Returns:
        Advantages, shape [S]. Add ``values`` to get the regression target of V.
    """
    if len(rewards) == 0:
        return np.zeros_like(rewards)
    ends = np.cumsum(lengths)
    next_values = np.empty_like(values)
    next_values[:-1] = values[1:]
    next_values[ends - 1] = bootstrap_value
    # Each trajectory is a column, and all columns *end* on the last row. The recursion runs backwards, so zeros above a
    # column's first step are never read, and need no mask.
    longest = int(lengths.max())
    column = np.repeat(np.arange(len(lengths)), lengths)
    row = np.arange(len(rewards)) - np.repeat(ends, lengths) + longest
    advantages = np.zeros((longest, *bootstrap_value.shape), rewards.dtype)
    decay = np.multiply(discount, gae_lambda)
    if durations is not None:
        lasting = durations if rewards.ndim == 1 else durations[:, None]
        discount, decay = np.power(discount, lasting), np.power(decay, lasting)
    advantages[row, column] = rewards + np.asarray(discount, rewards.dtype) * next_values - values
    # One for each column, since NumPy multiplies short rows by a number in three times the time.
    decays = np.empty((1, *bootstrap_value.shape) if durations is None else advantages.shape, rewards.dtype)
    decays[(0, slice(None)) if durations is None else (row, column)] = decay
    later, *earlier = reversed(list(advantages))
    for at, advantage in enumerate(earlier, start=2):
        later = np.add(advantage, decays[-at if len(decays) > 1 else 0] * later, out=advantage)
    flat: AnyFloats = advantages[row, column]
    return flat


def discounted_sums_so_far(
    rewards: NDArray[np.float64], before: NDArray[np.float64], lengths: NDArray[np.int64], *, discount: float
) -> NDArray[np.float64]:
    """Discounted sums of an agent's past rewards: R_t = γ R_{t−1} + r_t.

    Args:
        rewards: of R runs of steps, end to end, [S].
        before: R_{−1} of each run, [R].
        lengths: steps of each run, at least one, [R].

    Returns:
        Shape [S].
    """
    # In reversed time this is the recursion of Monte Carlo returns.
    backwards = ragged_generalized_advantage(
        rewards[::-1],
        np.zeros_like(rewards),
        before[::-1],
        lengths[::-1],
        discount=discount,
        gae_lambda=1.0,
    )
    return backwards[::-1].astype(np.float64, copy=False)


def standardize(values: AnyFloats) -> AnyFloats:
    """Zero mean and unit population standard deviation, shape kept; a constant input becomes zeros.

    An input whose deviation overflows becomes zeros too.
    """
    with np.errstate(over="ignore"):
        deviation = values.std()
    standardized: AnyFloats = (values - values.mean()) / (deviation + 1e-10)
    return standardized
