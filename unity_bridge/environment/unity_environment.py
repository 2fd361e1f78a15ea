"""The low-level Python API of ML-Agents on our bridge: programs written for ``mlagents_envs`` run as they are.

    from unity_bridge.environment import UnityEnvironment        # instead of mlagents_envs.environment

    env = UnityEnvironment("sim:3dball", seed=1)                  # or a Unity build; None waits for the Editor
    env.reset()
    name = next(iter(env.behavior_specs))
    for _ in range(100):
        decisions, terminals = env.get_steps(name)
        env.set_actions(name, env.behavior_specs[name].action_spec.random_action(len(decisions)))
        env.step()
    env.close()

Types and exceptions are those of the installed ``mlagents_envs``. Importing this module makes its side channels
importable too, which they are not by themselves with a protobuf that is still maintained.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlagents_envs import base_env
from mlagents_envs.exception import (
    UnityActionException,
    UnityEnvironmentException,
    UnityWorkerInUseException,
)

from unity_bridge.codec.protocol import API_VERSION
from unity_bridge.environment.channels import EnvironmentChannels
from unity_bridge.environment.low_level_steps import (
    LowLevelSteps,
    action_batch,
    low_level_spec,
    low_level_steps,
    no_steps,
)
from unity_bridge.environment.one_simulator import EXIT_WAIT_S, OneSimulator
from unity_bridge.errors import BridgeError, PortInUse
from unity_bridge.programs.executables import Command, resolve_program
from unity_bridge.server.session import Step
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

if TYPE_CHECKING:
    from mlagents_envs.side_channel import SideChannel


class UnityEnvironment(base_env.BaseEnv):  # type: ignore[misc]  # the published package ships no types
    """One simulator, driven step by step.

    Where it differs from the class of the same name in ``mlagents_envs``: pictures are (C, H, W) whatever the
    package of the build; a launched program gets a port that the system chooses unless ``base_port`` is given;
    messages may be larger than 4 MiB; every message is checked, and refused as a UnityObservationException; an
    episode that ended right after its agent asked for a decision has its last reward in the terminal step.
    """

    API_VERSION = API_VERSION
    DEFAULT_EDITOR_PORT = 5004
    BASE_ENVIRONMENT_PORT = 5005

    def __init__(
        self,
        file_name: str | None = None,
        worker_id: int = 0,
        base_port: int | None = None,
        seed: int = 0,
        no_graphics: bool = False,
        no_graphics_monitor: bool = False,
        timeout_wait: float = 60,
        additional_args: Sequence[str] | None = None,
        side_channels: Sequence[SideChannel] | None = None,
        log_folder: str | None = None,
        num_areas: int = 1,
    ) -> None:
        """Starts the simulator, or waits for one that attaches, and shakes hands with it.

        Args:
            file_name: a program, ``sim:NAME``, ``gym:ID``; None waits for the Unity Editor or a simulator.
            worker_id: added to ``base_port``; must be 0 without a program.
            base_port: None lets the system choose for a program, and means 5004 without one.
            seed: of the simulator; fits an int32.
            no_graphics: without a window.
            no_graphics_monitor: without a window unless ``worker_id`` is 0.
            timeout_wait: seconds that the simulator may take for each of its messages.
            additional_args: passed on to the program.
            side_channels: what they queue rides along with the next reset or step; what comes for them they hear
                before that reset or step returns.
            log_folder: where Player-<worker_id>.log goes; None keeps none.
            num_areas: copies of the training area that the simulator shall make.

        Raises:
            UnityEnvironmentException: no such program, it ended early, or it speaks another protocol; two side
                channels have one id.
            UnityTimeOutException: no simulator introduced itself in time.
            UnityWorkerInUseException: the port is taken.
        """
        self._channels = EnvironmentChannels(side_channels or ())
        self._timeout_s = timeout_wait
        self._specs: dict[str, BehaviorSpec] = {}
        self._low_level_specs: dict[str, base_env.BehaviorSpec] = {}
        self._steps: dict[str, LowLevelSteps] = {}
        self._actions: dict[str, ActionBatch] = {}
        self._was_reset = False
        self._simulator = OneSimulator(
            seed=seed, num_areas=num_areas, timeout_s=timeout_wait, outgoing=self._channels.outgoing
        )
        self._finalizer = weakref.finalize(self, self._simulator.close, EXIT_WAIT_S)
        """Leaves nothing running when the program forgets to close."""
        try:
            program = None
            if file_name is not None:
                program = resolve_program(
                    file_name,
                    additional_args or (),
                    no_graphics=no_graphics,
                    no_graphics_monitor=no_graphics_monitor,
                )
            self._connect(program, worker_id, base_port, log_folder)
        except BaseException as error:
            self._finalizer()
            if isinstance(error, PortInUse):
                raise UnityWorkerInUseException(worker_id) from error
            if isinstance(error, BridgeError):
                raise UnityEnvironmentException(str(error)) from error
            raise

    def _connect(
        self, program: Command | None, worker_id: int, base_port: int | None, log_folder: str | None
    ) -> None:
        """Launches the program, or waits for a simulator that attaches, and shakes hands. Raises like ``__init__``."""
        if program is not None:
            self._simulator.launch(
                program,
                worker=worker_id,
                port=0 if base_port is None else base_port + worker_id,
                log_folder=Path(log_folder) if log_folder else None,
            )
        elif worker_id != 0:
            raise UnityEnvironmentException(f"worker_id: expected 0 without a program, got {worker_id}")
        else:
            self._simulator.listen(self.DEFAULT_EDITOR_PORT if base_port is None else base_port)
        self._simulator.connect()

    @property
    def behavior_specs(self) -> base_env.BehaviorMapping:
        """The specs of the behaviors met so far, by full id (``3DBall?team=0``)."""
        return base_env.BehaviorMapping(self._low_level_specs)

    def reset(self) -> None:
        """Starts every agent's episode again, without ending the old ones.

        Raises:
            UnityTimeOutException: the simulator said nothing in time.
            UnityCommunicatorStoppedException: it ended the conversation.
            UnityEnvironmentException: its process ended, or this environment is closed.
            UnityObservationException: its message breaks the protocol.
        """
        self._require_open()
        self._store(self._simulator.reset())
        self._was_reset = True

    def step(self) -> None:
        """Acts, and waits until some agent asks or ends. The first step is a reset; raises like it.

        Agents without an action get zeros.
        """
        self._require_open()
        if not self._was_reset:
            self.reset()
            return
        actions = {behavior: self._actions_of(behavior) for behavior in self._specs}
        self._store(self._simulator.step(actions))

    def get_steps(self, behavior_name: str) -> LowLevelSteps:
        """Returns the decision steps and the terminal steps of the last step.

        Raises:
            UnityActionException: no such behavior was met.
        """
        self._require_known(behavior_name)
        return self._steps[behavior_name]

    def set_actions(self, behavior_name: str, action: base_env.ActionTuple) -> None:
        """Sets the actions of the waiting agents, in the order of their DecisionSteps.

        Raises:
            UnityActionException: no such behavior was met, or arrays of other shapes than (agents, size).
        """
        self._require_known(behavior_name)
        spec, agents = self._low_level_specs[behavior_name].action_spec, len(self._steps[behavior_name][0])
        self._actions[behavior_name] = action_batch(action, agents, spec, behavior_name)

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: base_env.ActionTuple) -> None:
        """Sets the action of one waiting agent; arrays of one row.

        Raises:
            UnityActionException: no such behavior was met, or arrays of other shapes than (1, size).
            IndexError: the agent does not wait for an action.
        """
        self._require_known(behavior_name)
        spec, decisions = self._low_level_specs[behavior_name].action_spec, self._steps[behavior_name][0]
        one = action_batch(action, 1, spec, behavior_name)
        if agent_id not in decisions.agent_id_to_index:
            raise IndexError(f"agent {agent_id} of '{behavior_name}' does not wait for an action")
        row = decisions.agent_id_to_index[agent_id]
        actions = self._actions.setdefault(behavior_name, self._actions_of(behavior_name))
        actions.continuous[row], actions.discrete[row] = one.continuous[0], one.discrete[0]

    def close(self) -> None:
        """Closes the simulator's conversation, waits for its process to exit, and frees the port.

        Raises:
            UnityEnvironmentException: it is closed already.
        """
        self._require_open()
        self._finalizer.detach()
        self._simulator.close(self._timeout_s)

    def _store(self, step: Step) -> None:
        """Stores the simulator's latest step."""
        self._actions.clear()
        for behavior, spec in step.new_specs.items():
            self._specs[behavior] = spec
            self._low_level_specs[behavior] = low_level_spec(spec)
        for behavior, spec in self._specs.items():
            batch = step.batches.get(behavior)
            known = self._low_level_specs[behavior]
            self._steps[behavior] = low_level_steps(batch, spec.action_spec) if batch else no_steps(known)
        self._channels.deliver(step.messages)

    def _actions_of(self, behavior: str) -> ActionBatch:
        """The actions that were set, or zeros."""
        if behavior in self._actions:
            return self._actions[behavior]
        return ActionBatch.zeros(len(self._steps[behavior][0]), self._specs[behavior].action_spec)

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise UnityEnvironmentException("this environment is closed")

    def _require_known(self, behavior: str) -> None:
        if behavior not in self._specs:
            known = ", ".join(self._specs) or "none before the first reset"
            raise UnityActionException(f"no behavior '{behavior}'; known: {known}")
