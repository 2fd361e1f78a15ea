"""Advantages and returns of trajectories that never cross an episode end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyFloats = NDArray[np.floating[Any]]


def generalized_advantage(
    rewards: AnyFloats, values: AnyFloats, bootstrap_value: AnyFloats, *, discount: float, gae_lambda: float
) -> AnyFloats:
    """Generalized advantage estimates, eq. 16 of Schulman et al. 2016 (arXiv:1506.02438).

        δ_t = r_t + γ V(s_{t+1}) − V(s_t)
        Â_t = δ_t + γλ Â_{t+1},    Â_T = 0

    Each column is one trajectory that never crosses an episode end, so no masks are needed.

    Args:
        rewards: r_0 … r_{T−1}, shape [T, B].
        values: V(s_0) … V(s_{T−1}), shape [T, B].
        bootstrap_value: V(s_T), or 0 where the episode terminated. Shape [B].
        discount: γ, per decision.
        gae_lambda: λ; 0 gives one-step TD errors, 1 gives Monte Carlo returns minus V.

    Returns:
        Advantages, shape [T, B]. Add ``values`` to get the regression target of V.
    """
    next_values = np.concatenate([values[1:], bootstrap_value[None]])
    advantages = rewards + discount * next_values - values
    decay = discount * gae_lambda
    for t in range(len(advantages) - 2, -1, -1):
        advantages[t] += decay * advantages[t + 1]
    return advantages


def ragged_generalized_advantage(
    rewards: AnyFloats,
    values: AnyFloats,
    bootstrap_value: AnyFloats,
    lengths: NDArray[np.int64],
    *,
    discount: float,
    gae_lambda: float,
) -> AnyFloats:
    """Advantages of P concatenated trajectories of any length, S steps in total.

    Args:
        rewards, values: shape [S].
        bootstrap_value: shape [P].
        lengths: steps of each trajectory, in order, summing to S. Shape [P].

    Returns:
        Advantages, shape [S].
    """
    if len(rewards) == 0:
        return np.zeros_like(rewards)
    longest = int(lengths.max())
    # Each trajectory is a column, and all columns *end* on the last row. The recursion runs backwards, so values above
    # a column's first step are never read, and need no mask.
    column = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.cumsum(lengths)
    row = np.arange(len(rewards)) - np.repeat(ends, lengths) + longest
    padded_rewards = np.zeros((longest, len(lengths)), rewards.dtype)
    padded_values = np.zeros_like(padded_rewards)
    padded_rewards[row, column] = rewards
    padded_values[row, column] = values
    advantages = generalized_advantage(
        padded_rewards, padded_values, bootstrap_value, discount=discount, gae_lambda=gae_lambda
    )
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
