"""Replay buffer for groups of agents with memory: it samples whole group trajectories, with memories before them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trainer_service.learning.replay.joint_transitions import JointReplay, JointSample, JointSequences
from trainer_service.learning.replay.sequence_replay import WholeSequences
from trainer_service.learning.rollout.joint_steps import split_group_trajectories
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows


class JointSequenceReplay(WholeSequences[JointSample], JointReplay):
    """Replay buffer of the last ``capacity`` joint steps, sampled as whole group trajectories.

    No sequence is longer than ``longest`` joint steps.
    """

    row_name = "joint steps"

    def __init__(self, *arguments: Any, longest: int, **others: Any) -> None:
        """longest: joint steps of a sequence. Other arguments: see WholeSequences and JointReplay."""
        super().__init__(*arguments, **others)
        self._holds = False  # memories follow decisions
        self._longest = longest

    def _write_rows(self, trajectories: Trajectories) -> Rows:
        num_agents = len(self._agent_indices)
        return super()._write_rows(split_group_trajectories(trajectories, num_agents, self._longest))

    def _in_sequences(self, sample: JointSample, lengths: Rows) -> JointSample:
        rows = sample.rows
        window = self._window(rows, self._n_step)
        next_rows, _, finals = self._next_rows(window)
        final = np.zeros(next_rows.shape, np.bool_)
        final[finals] = True
        next_positions = np.where(final, window.at, next_rows)
        segments = np.where(sample.present, self._steps["segment"][rows], -1)
        memories = self._finals["memories"][segments % self._final_capacity]
        memories[~sample.present] = 0.0
        follow_observations, follow_present = sample.next_observations, sample.next_present
        if self._n_step > 1:
            successors, follow_present = self._successors(self._window(rows, 1))
            follow_observations = tuple(successors(name) for name in self._sensor_columns)
        sequences = JointSequences(
            lengths=lengths,
            segments=segments,
            memories=memories,
            offsets=self._wrap(next_positions - rows[:, None]),
            final=final,
            follow_observations=follow_observations,
            follow_present=follow_present,
        )
        return replace(sample, sequences=sequences)
