"""One more copy of the environment that simulators host, for its reward function alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unity_bridge.process_guard import HostedExit, ProcessGuard
from unity_bridge.programs.executables import Command
from unity_bridge.simulators import command as simulator
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.schemes import scheme_of
from unity_bridge.simulators.third_party import ForeignCode

if TYPE_CHECKING:
    from unity_bridge.simulators.goals import GoalEnvironment


def open_goal_environment(command: Command) -> GoalEnvironment:
    """Opens the goal environment of a program, with its arguments and wrappers.

    Raises:
        SceneError: it is no goal environment of Gymnasium, or cannot be made.
    """
    guard = ProcessGuard(command.env)
    try:
        task = guard.call(_open, command)
    except HostedExit as error:
        raise SceneError(str(error)) from error
    guard.around(task, *(name for name in vars(type(task)) if not name.startswith("_")))
    return task


def _open(command: Command) -> GoalEnvironment:
    scheme = scheme_of(command.env) if command.is_bundled else None
    if scheme is None or scheme.kind not in ("single", "any"):
        raise SceneError(f"{command.env}: it has no compute_reward that the trainer could call")

    arguments = simulator.parse([command.env, *command.arguments])
    # A single copy, stepped in this process and not filmed.
    arguments.agents = arguments.vector = arguments.record = None
    opener = open_scene if command.environment is None else command.environment.open
    scene = simulator.open_for(arguments, simulator.academy_for(arguments), opener)
    try:
        from unity_bridge.simulators.goals import GoalEnvironment  # Gymnasium, which is there now

        return GoalEnvironment(scene, ForeignCode(command.env))
    except BaseException:
        scene.close()
        raise
