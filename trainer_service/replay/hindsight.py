"""Hindsight experience replay, Andrychowicz et al. 2017 (arXiv:1707.01495).

A transition that missed its goal would have been right for another one: the goal that the agent achieved later in the
same trajectory. Goals are replaced when a transition is sampled, so the buffer stores nothing twice.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from trainer_service.replay.transitions import Sample, TransitionReplay
from unity_bridge.arrays import Bools, Floats32, Rows
from unity_bridge.specs import ACHIEVED_GOAL, DESIRED_GOAL, BehaviorSpec
from unity_bridge.steps import Observation, as_floats

Strategy = Literal["future", "final", "episode"]


class GoalTask(Protocol):
    """The task of a goal environment: what each achieved goal is worth for each desired one."""

    def rewards(self, achieved: Floats32, desired: Floats32) -> Floats32:
        """Rewards of N steps. Shapes [N, size] to [N]."""
        ...

    def terminated(self, achieved: Floats32, desired: Floats32) -> Bools | None:
        """Whether each of N steps ends the task; None where the environment does not say. Shapes as above."""
        ...


class HindsightReplay(TransitionReplay):
    """Replay buffer of transitions, most of them sampled with a goal that was achieved later.

    Of every ``n_sampled_goal + 1`` transitions of a sample one keeps its own goal. Each of the others gets the goal
    that was achieved after a step of the same trajectory. The reward is computed anew, and the termination where the
    environment has a function for it; otherwise that stays as it was.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        capacity: int,
        *,
        n_sampled_goal: int,
        strategy: Strategy,
        task: GoalTask | None,
    ) -> None:
        """task: None where nothing is sampled. Raises ValueError for a behavior without goals."""
        self._achieved, self._desired = goal_sensors(spec)
        super().__init__(spec, capacity)
        self._n_sampled_goal = n_sampled_goal
        self._strategy = strategy
        self._task = task

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """Samples ``count`` rows, the first of which have other goals. Raises ValueError where there are none."""
        if self._task is None:
            raise ValueError(
                "replay of type hindsight needs the reward function of a goal environment, got none"
            )
        sample = super().sample(count, rng, beta=beta)
        replaced = count * self._n_sampled_goal // (self._n_sampled_goal + 1)
        if not replaced:
            return sample
        goals = self._achieved_after(self._goal_rows(sample.rows[:replaced], rng))
        _replace_goals(
            self._task,
            goals,
            achieved=sample.next_observations[self._achieved],
            desired=(sample.observations[self._desired], sample.next_observations[self._desired]),
            rewards=sample.task_rewards,
            terminated=sample.terminated,
        )
        return sample

    def _goal_rows(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """A row of the same trajectory for each of B rows. Shape kept."""
        first, end = self._trajectories_of(rows)
        if self._strategy == "final":
            found = end - 1
        else:
            begin = self._age(rows) if self._strategy == "future" else first
            found = rng.integers(begin, end)
        goal_rows: Rows = (self.oldest + found) % self.capacity
        return goal_rows

    def _trajectories_of(self, rows: Rows) -> tuple[Rows, Rows]:
        """Ages of the first row of each row's trajectory that is left, and of the row after its last. Shapes [B]."""
        segments = self._steps["segment"]
        wanted = segments[rows]
        # Trajectories are numbered in the order of time. Where the ring closes, both parts are sorted by themselves.
        parts = segments[self.oldest : self._size], segments[: self.oldest]
        first = sum(np.searchsorted(part, wanted, "left") for part in parts)
        end = sum(np.searchsorted(part, wanted, "right") for part in parts)
        return np.asarray(first), np.asarray(end)

    def _age(self, rows: Rows) -> Rows:
        """How many rows are older than each. Shape kept."""
        ages: Rows = (rows - self.oldest) % self.capacity
        return ages

    def _achieved_after(self, rows: Rows) -> Floats32:
        """The goals that were achieved after steps. Shape [B, size]."""
        successors, _ = self._after(rows)
        return as_floats(successors(self._sensor_columns[self._achieved]))


def goal_sensors(spec: BehaviorSpec) -> tuple[int, int]:
    """Numbers of the sensors that show the achieved and the desired goal. Raises ValueError where there are none."""
    sensors = {sensor.name: number for number, sensor in enumerate(spec.observation_specs)}
    if ACHIEVED_GOAL in sensors and DESIRED_GOAL in sensors:
        achieved, desired = sensors[ACHIEVED_GOAL], sensors[DESIRED_GOAL]
        shapes = [spec.observation_specs[number].shape for number in (achieved, desired)]
        if len(shapes[0]) == 1 and shapes[0] == shapes[1]:
            return achieved, desired
    got = ", ".join(f"{sensor.name} {list(sensor.shape)}" for sensor in spec.observation_specs)
    raise ValueError(
        f"replay of type hindsight: expected the sensors '{ACHIEVED_GOAL}' and '{DESIRED_GOAL}', two vectors of one "
        f"size, got {got:.300}"
    )


def _replace_goals(
    task: GoalTask,
    goals: Floats32,
    *,
    achieved: Observation,
    desired: tuple[Observation, Observation],
    rewards: Floats32,
    terminated: Bools,
) -> None:
    """Writes other goals into the first rows of a sample, whose arrays are copies of the buffer's.

    Args:
        task: of the environment.
        goals: of the first B rows. Shape [B, size].
        achieved: goals that were achieved after the steps.
        desired: the goals of the observations and of the next ones.
        rewards, terminated: of the steps.
    """
    first = slice(len(goals))
    reached = as_floats(achieved[first])
    ends = np.flatnonzero(terminated[first])
    if (ended := task.terminated(reached, goals)) is not None:
        if len(ends):
            # An end that the goal does not explain, such as a fall, stays one.
            explained = task.terminated(reached[ends], as_floats(desired[1][ends]))
            ended[ends] |= ~np.asarray(explained)
        terminated[first] = ended
    rewards[first] = task.rewards(reached, goals)
    for each in desired:
        each[first] = goals
