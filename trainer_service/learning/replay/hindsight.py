"""Hindsight experience replay, Andrychowicz et al. 2017 (arXiv:1707.01495).

A transition that missed its goal is a success for another goal, namely one that the agent achieved later in the same
trajectory. Goals are replaced when a transition is sampled, so the buffer stores nothing twice.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from trainer_service.errors import ConfigError
from trainer_service.learning.replay.transitions import Sample, TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Bools, Floats32, Rows
from unity_bridge.specs import ACHIEVED_GOAL, DESIRED_GOAL, BehaviorSpec
from unity_bridge.steps import Observation, as_floats

Strategy = Literal["future", "final", "episode"]


class GoalTask(Protocol):
    """The task of a goal environment: rewards and terminations of achieved and desired goals."""

    def rewards(self, achieved: Floats32, desired: Floats32) -> Floats32:
        """Returns the rewards of N steps. Shapes [N, size] to [N]."""
        ...

    def mismatch(self, achieved: Floats32, desired: Floats32, paid: Floats32) -> Exception | None:
        """Returns an error where the task pays other rewards than N steps were paid. Shapes as above."""
        ...

    def terminated(self, achieved: Floats32, desired: Floats32) -> Bools | None:
        """Returns whether each of N steps ends the task; None without such a function. Shapes as above."""
        ...


class HindsightReplay(TransitionReplay):
    """Replay buffer of transitions. Most are sampled with a goal that was achieved in the same trajectory.

    Of every ``n_sampled_goal + 1`` transitions of a sample, one keeps its own goal. Each other transition gets the
    goal that was achieved after a step of the same trajectory, and a new reward. The termination is computed again only
    if the environment has a function for it.
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
        """task: None for a buffer that is not sampled. Raises ValueError for a behavior without goals."""
        self._achieved, self._desired = goal_sensors(spec)
        super().__init__(spec, capacity)
        self._n_sampled_goal = n_sampled_goal
        self._strategy = strategy
        self._task = task

    def add(self, trajectories: Trajectories) -> Rows:
        """Adds trajectories. Raises ConfigError where the environment pays other rewards than its reward function."""
        rows = super().add(trajectories)
        if self._task is not None:
            after, _ = self._after(rows)
            columns = (self._sensor_columns[sensor] for sensor in (self._achieved, self._desired))
            achieved, desired = (as_floats(after(column)) for column in columns)
            if error := self._task.mismatch(achieved, desired, self._steps["task_rewards"][rows]):
                raise ConfigError(f"hyperparameters.replay.type: hindsight: {error}")
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """Samples ``count`` rows, the first of them with replaced goals. Raises ValueError without a task or rows."""
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
        """Returns a row of the same trajectory for each of B rows. Shape kept."""
        first, end = self._trajectories_of(rows)
        if self._strategy == "final":
            found = end - 1
        else:
            begin = self._age(rows) if self._strategy == "future" else first
            found = rng.integers(begin, end)
        goal_rows: Rows = (self.oldest + found) % self.capacity
        return goal_rows

    def _trajectories_of(self, rows: Rows) -> tuple[Rows, Rows]:
        """Ages of the first remaining row of each row's trajectory, and of the row after its last. Shapes [B]."""
        segments = self._steps["segment"]
        wanted = segments[rows]
        # Trajectories are numbered in time order. The ring has two parts, each sorted.
        parts = segments[self.oldest : self._size], segments[: self.oldest]
        first = sum(np.searchsorted(part, wanted, "left") for part in parts)
        end = sum(np.searchsorted(part, wanted, "right") for part in parts)
        return np.asarray(first), np.asarray(end)

    def _age(self, rows: Rows) -> Rows:
        """The number of older rows, for each row. Shape kept."""
        ages: Rows = (rows - self.oldest) % self.capacity
        return ages

    def _achieved_after(self, rows: Rows) -> Floats32:
        """The goals that were achieved after these steps. Shape [B, size]."""
        successors, _ = self._after(rows)
        return as_floats(successors(self._sensor_columns[self._achieved]))


def goal_sensors(spec: BehaviorSpec) -> tuple[int, int]:
    """Returns the numbers of the sensors of the achieved and the desired goal. Raises ValueError if there are none."""
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
    """Replaces the goals of a sample's first rows. The sample's arrays are copies, so the buffer stays unchanged.

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
            # A termination that the goal does not explain, such as a fall, stays.
            explained = task.terminated(reached[ends], as_floats(desired[1][ends]))
            ended[ends] |= ~np.asarray(explained)
        terminated[first] = ended
    rewards[first] = task.rewards(reached, goals)
    for each in desired:
        each[first] = goals
