"""The goal environment of a run. Replay buffers of type ``hindsight`` call its reward function."""

from __future__ import annotations

from contextlib import ExitStack

from trainer_service.config import RunOptions
from trainer_service.errors import ConfigError
from trainer_service.learning.replay.hindsight import GoalTask
from unity_bridge.programs.executables import Command
from unity_bridge.programs.goal_environment import open_goal_environment
from unity_bridge.simulators.scene import SceneError

_EXPECTED = (
    "hyperparameters.replay.type: hindsight calls the environment's compute_reward in the trainer: expected a goal "
    "environment of Gymnasium (--env gym:ID, or an environment passed to train())"
)


def open_goal_task(
    options: RunOptions, command: Command | None, learners: int, stack: ExitStack
) -> GoalTask | None:
    """Creates another environment of the run for its task. Returns None if no behavior replaces goals.

    Args:
        options: of the run.
        command: the simulator; None if simulators attach.
        learners: number of learner ranks.
        stack: closes the environment.

    Raises:
        ConfigError: The simulator is not a goal environment, or several learner ranks share the updates.
    """
    settings = [*options.behaviors.values(), options.default_settings]
    relabels = any(each is not None and each.hyperparameters.relabels_goals for each in settings)
    if options.checkpoint_settings.inference or not relabels:
        return None
    try:
        return goal_task_of(command, learners, stack)
    except SceneError as error:
        raise ConfigError(f"{_EXPECTED}; {error}") from error


def goal_task_of(command: Command | None, learners: int, stack: ExitStack) -> GoalTask:
    """Creates another environment of a simulator for its task. Arguments as above.

    Raises:
        SceneError: why hindsight replay cannot use it.
    """
    if learners > 1:
        raise SceneError(
            f"one learner hosts this environment: expected distributed.num_learners 1, got {learners}"
        )
    if command is None:
        raise SceneError("got simulators that attach")
    task = open_goal_environment(command)
    stack.callback(task.close)
    return task
