"""Who won: games between teams, told by the rewards that their last messages bring."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.agents import agent_keys
from unity_bridge.steps import StepBatch


def outcomes(
    batch: StepBatch, team: int, ended: NDArray[np.intp], over: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Results of the games that end with this tick: 1 won, ½ drawn, 0 lost, by the sign of the last rewards.

    An agent without a group plays for itself. A group plays one game, which ends with the last of its members:
    what those bring who end with it, their own rewards and the group's, decides. Interrupted games have no result.

    Args:
        batch: the tick.
        team: whose agents these are.
        ended: rows of the agents whose episode ends. Shape [E].
        over: keys (see ``agent_keys``) of the groups of which nobody is left. Shape [G].

    Returns:
        First agents' results in the order of their rows, then groups'. At most [E + G].
    """
    last = batch.rewards + batch.group_rewards
    alone = ended[(batch.group_ids[ended] == 0) & batch.terminated[ended]]
    scores = last[alone].tolist()
    if len(over):
        keys = agent_keys(batch.group_ids, team)[: batch.num_terminal]
        groups, of_row = np.unique(keys, return_inverse=True)
        members = np.bincount(of_row, minlength=len(groups))
        finished = np.bincount(of_row[batch.terminated[: len(keys)]], minlength=len(groups)) == members
        sums = np.bincount(of_row, last[: len(keys)].astype(np.float64), minlength=len(groups))
        at = np.minimum(np.searchsorted(groups, over), len(groups) - 1)
        won = (groups[at] == over) & finished[at] if len(groups) else np.zeros(len(over), np.bool_)
        scores += (sums / np.maximum(members, 1))[at[won]].tolist()
    results: NDArray[np.float64] = (np.sign(scores) + 1) / 2
    return results
