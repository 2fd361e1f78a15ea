"""Layout of group observations as sequences: each agent's own decisions, and its final observation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainer_service.learning.replay.joint_transitions import JointSequences
from unity_bridge.arrays import Bools, Floats32, Rows


class JointLayout(NamedTuple):
    """Q sequences of agents in B joint steps of groups with n agents. P places, one additional for each sequence.

    A sequence has an agent's decisions of one trajectory. So an agent that joins later starts its own sequence, and
    ticks without its decision are not part of it. Sequences are sorted by agent.
    """

    rows: Rows
    """The joint step of each place; after a sequence, B plus an index of ``follows``. [P]"""

    agents: Rows
    """The index of each place's agent. [P]"""

    follows: Rows
    """The joint steps after which sequences end, each once. [R]"""

    filled: Bools
    """Whether a place exists, if every sequence gets a row of the longest length. [Q, longest]"""

    memories: Floats32
    """Agents' memories before their sequences. [Q, memory size]"""

    selected: Rows
    """The place of each decision; for absent agents the first place. [B, n]"""

    next_selected: Rows
    """The place of each next observation; the first place if there is none. [B, n]"""


def joint_layout(sequences: JointSequences, present: Bools) -> JointLayout:
    """Returns the layout of a sample. present: whether agents decide, [B, n]."""
    size, num_agents = present.shape
    group_trajectory = np.repeat(np.arange(len(sequences.lengths)), sequences.lengths)
    agents, rows = np.nonzero(present.T)
    keys = (agents, group_trajectory[rows], sequences.segments[rows, agents])
    starts = np.flatnonzero(np.any([np.diff(key, prepend=-1) != 0 for key in keys], axis=0))
    lengths = np.diff(starts, append=len(rows))
    last = starts + lengths - 1
    number = np.repeat(np.arange(len(starts)), lengths)
    places, final_places = np.arange(len(rows)) + number, last + np.arange(len(starts)) + 1
    follows, followed = np.unique(rows[last], return_inverse=True)
    place_rows, place_agents = np.empty((2, len(rows) + len(starts)), np.int64)
    place_rows[places], place_rows[final_places] = rows, size + followed
    place_agents[places], place_agents[final_places] = agents, agents[last]
    selected, finals = np.zeros((2, size, num_agents), np.int64)
    selected[rows, agents], finals[rows, agents] = places, final_places[number]
    there = (np.minimum(np.arange(size)[:, None] + sequences.offsets, size - 1), np.arange(num_agents))
    return JointLayout(
        rows=place_rows,
        agents=place_agents,
        follows=follows,
        filled=np.arange(int(lengths.max()) + 1) <= lengths[:, None],
        memories=sequences.memories[rows[starts], agents[starts]],
        selected=selected,
        next_selected=np.where(sequences.final, finals[there], selected[there]),
    )
