"""Ratings and win rates of players."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

K = 1.0
"""The largest change of a rating by one game, as in ML-Agents. Chess uses 10 to 40; games are cheap here."""

_SCALE = 400.0
"""Rating difference at which one player wins ten times as often as the other."""

_Z_95 = 1.959964
"""A standard normal variable is within ± this with probability 0.95."""


def expected_result(rating: float, opponent: float) -> float:
    """Expected result of a game, from 0 (always lost) to 1: 1 / (1 + 10^((O − R)/400)), Elo 1978."""
    return 1.0 / (1.0 + math.pow(10.0, (opponent - rating) / _SCALE))


def rating_change(rating: float, opponent: float, result: float) -> float:
    """Rating points that a game adds to the player and takes from the opponent. result: 1 won, ½ drawn, 0 lost."""
    return K * (result - expected_result(rating, opponent))


def elo_difference(win_rate: float) -> float:
    """Rating difference of two players, from one player's win rate: 400 log10(p / (1 − p)).

    The inverse of ``expected_result``; −∞ for a win rate of 0, ∞ for 1.
    """
    if win_rate <= 0.0:
        return -math.inf
    if win_rate >= 1.0:
        return math.inf
    return _SCALE * math.log10(win_rate / (1.0 - win_rate))


def wilson_interval(won: float, games: int, z: float = _Z_95) -> tuple[float, float]:
    """The Wilson score interval of a share (Wilson 1927), also valid for few games and for shares near 0 and 1.

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n), with p = won/n.

    Args:
        won: games won; a draw counts half, which makes the interval wider than it need be, never narrower.
        games: n, at least 1.
        z: quantile of the normal distribution; 1.96 for 95 %.
    """
    share, spread = won / games, z * z / games
    middle = share + spread / 2.0
    reach = math.sqrt(max(share * (1.0 - share), 0.0) * spread + spread * spread / 4.0)
    return max((middle - reach) / (1.0 + spread), 0.0), min((middle + reach) / (1.0 + spread), 1.0)


PFSP_WEIGHTINGS: Mapping[str, Callable[[float], float]] = {
    "uniform": lambda win_rate: 1.0,
    "hard": lambda win_rate: (1.0 - win_rate) ** 2,
    "variance": lambda win_rate: win_rate * (1.0 - win_rate),
}
"""Weights of opponents by the learner's win rate against each: prioritized fictitious self-play, Vinyals et al. 2019.

``hard`` prefers opponents that beat the learner, ``variance`` opponents of equal strength.
"""

LEAST_PRIORITY = 0.01
"""The least weight of an opponent. An opponent that always loses is still drawn, in case it no longer loses."""


def pfsp_weight(weighting: str, win_rate: float) -> float:
    """The weight of an opponent in a draw; see ``PFSP_WEIGHTINGS``."""
    return max(PFSP_WEIGHTINGS[weighting](win_rate), LEAST_PRIORITY)
