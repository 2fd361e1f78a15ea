"""A trained policy to act with, on arrays; no simulator, no server."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.algorithms.common.member_policy import ExportedNetwork, GroupMember
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.learning.networks.size_limit import SizeLimit
from trainer_service.learning.rollout.agent_padding import AgentPadding
from trainer_service.running.runs.checkpoint import MISFIT_ERRORS, Checkpoint, load_checkpoint
from trainer_service.running.runs.layout import NEWEST, RunLayout, missing_run, run_path
from unity_bridge.extras import install_hint
from unity_bridge.process_guard import plain_torch
from unity_bridge.specs import BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, Observation
from unity_bridge.untrusted_text import first_line

if TYPE_CHECKING:
    from trainer_service.running.policy.gym_policy import GymPolicy
    from trainer_service.running.policy.pettingzoo_policy import AgentEnvironment, PettingZooPolicy


class InvalidRow(ValueError):
    """An array in which the values of one agent, that of ``row``, cannot be used."""

    def __init__(self, text: str, row: int) -> None:
        super().__init__(text)
        self.row = row


class Policy:
    """One behavior's policy, frozen.

    ``act`` decides, or for a policy with memory ``predict``, which takes memories and returns new ones: the policy
    keeps no state, so it serves any number of agents and episodes.
    """

    @plain_torch(torch)
    def __init__(self, checkpoint: Checkpoint, *, device: str = "cpu", seed: int = 0) -> None:
        """Builds the policy. Raises UserError for weights that do not fit, PluginError where its plugin cannot be used.

        That of a heterogeneous group acts for all members, padded; ``member`` gives the policy of one of them.
        """
        try:
            self._device = torch.device(device)
            torch.empty(0, device=self._device)
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"device '{device}' cannot be used: {first_line(error)}") from None
        self.behavior = checkpoint.behavior
        self.spec: BehaviorSpec = checkpoint.spec
        self.step = checkpoint.step
        """Agent steps that it was trained for."""
        memory = checkpoint.settings.network_settings.memory
        self.memory_size = 0 if memory is None else memory.memory_size
        """Floats that it carries from one decision of an agent to the next; 0 for a policy without memory."""
        try:
            with SizeLimit(checkpoint.algorithm):
                self._selector = selector_for(checkpoint.spec, checkpoint.settings)
                self._padding = AgentPadding(checkpoint.spec) if checkpoint.spec.members else None
                learner = make_learner(self._selector.spec, checkpoint.settings, Compute(self._device, seed))
            learner.load_weights(checkpoint.algorithm)
            self._actor = learner.actor
        except MISFIT_ERRORS as error:
            raise UserError(
                f"behavior '{self.behavior}': its weights do not fit its settings: {error}"
            ) from None

        self._hyper = checkpoint.settings.hyperparameters
        self._member: GroupMember | None = None
        """The member of a heterogeneous group that it acts for; None for all of them, and for one behavior."""

    @property
    def members(self) -> list[str]:
        """The behaviors of the heterogeneous group that it acts for; none for the policy of one behavior."""
        return [member.behavior for member in self.spec.members]

    def member(self, behavior: str) -> Policy:
        """The policy of one member of the group, with that behavior's own sensors, actions and agent indices.

        Raises UserError for a behavior that is none of ``members``.
        """
        if behavior not in self.members:
            raise UserError(f"'{self.behavior}' has no member '{behavior}'; it has {', '.join(self.members)}")
        policy = copy.copy(self)
        policy._member = GroupMember(self._selector, self.members.index(behavior), self._hyper)
        policy.behavior, policy.spec = behavior, policy._member.spec
        return policy

    def parts(self) -> dict[str, Policy]:
        """The policy by the behaviors that simulators have: itself, or one for each member of a group."""
        return {name: self.member(name) for name in self.members} or {self.behavior: self}

    @property
    def num_agents(self) -> int:
        """Number of agents of a group that it tells apart; 0 where it does not need agent indices."""
        return self._selector.num_agents if self._member is None else self._member.num_agents

    @property
    def communicates(self) -> bool:
        """Whether its agents decide from the observations of all agents in their group."""
        return self._selector.shows_group

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu", seed: int = 0) -> Policy:
        """Reads a checkpoint file. ``seed`` starts the random stream of stochastic actions.

        Raises:
            UserError: the file is missing, damaged, or unusable.
        """
        return cls(load_checkpoint(Path(path)), device=device, seed=seed)

    def act(
        self,
        observations: Sequence[ArrayLike] | NDArray[Any],
        allowed_actions: ArrayLike | None = None,
        *,
        agent_indices: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> ActionBatch:
        """Decides for M agents, by a policy without memory; ``predict`` takes any policy.

        Args:
            observations: one array ``[M, *sensor shape]`` per sensor, in the order of ``spec``; for a behavior
                with a single sensor that array alone will do. Pictures are [M, C, H, W], as floats in [0, 1]
                or as bytes.
            allowed_actions: True where a choice is allowed, branches side by side, [M, sum of branches];
                None allows everything.
            agent_indices: each agent's index in its group, from 0, for policies that tell them apart
                (``num_agents``). [M]
            groups: a number for each agent that is equal within a group, for policies of agents that see each other's
                observations (``communicates``): those of the same call, and zeros for members that are not in it. [M]
                None: all are of one group.
            deterministic: the likeliest action instead of a sampled one.

        Returns:
            Actions as a simulator takes them: continuous in [−1, 1], one index per discrete branch.

        Raises:
            ValueError: arrays that do not fit the behavior, or a policy that has a memory.
        """
        if self.memory_size:
            raise ValueError(
                f"the policy of behavior '{self.behavior}' has a memory: use predict(), which keeps it"
            )
        actions, _ = self.predict(
            observations,
            None,
            allowed_actions,
            agent_indices=agent_indices,
            groups=groups,
            deterministic=deterministic,
        )
        return actions

    def predict(
        self,
        observations: Sequence[ArrayLike] | NDArray[Any],
        memories: NDArray[np.float32] | None = None,
        allowed_actions: ArrayLike | None = None,
        *,
        episode_starts: ArrayLike | None = None,
        agent_indices: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[ActionBatch, NDArray[np.float32]]:
        """Decides for M agents with memories, and returns their new memories.

        Args:
            observations, allowed_actions, agent_indices, groups, deterministic: as for ``act``.
            memories: the memory that the step before returned, [M, memory_size]; None if all episodes begin.
            episode_starts: True for agents at the first step of an episode; their memories start from zero,
                whatever ``memories`` holds. bool [M]

        Returns:
            Actions as ``act`` gives them, and memories [M, memory_size] for the same agents' next step.

        Raises:
            ValueError: arrays that do not fit the behavior.
        """
        request = self.request(observations, allowed_actions, agent_indices, groups, deterministic)
        rows = len(request.allowed_actions)
        return self.decide(request._replace(memories=self._previous_memories(memories, episode_starts, rows)))

    def request(
        self, observations: Sequence[ArrayLike] | NDArray[Any], allowed_actions: ArrayLike | None,
        agent_indices: ArrayLike | None, groups: ArrayLike | None, deterministic: bool,
    ) -> ActRequest:  # fmt: skip
        """Returns the arguments of ``act`` as the network takes them, without memories. Their rows may be concatenated.

        Raises ValueError for arrays that do not fit the behavior, ``InvalidRow`` for an agent whose values do not.
        """
        sensors = self._sensors(observations)
        rows = len(sensors[0])
        actions = self.spec.action_spec
        mask_size = actions.mask_size
        if allowed_actions is None:
            allowed = np.ones((rows, mask_size), np.bool_)
        else:
            allowed = np.ascontiguousarray(allowed_actions, np.bool_)
            if allowed.shape != (rows, mask_size):
                raise ValueError(f"allowed_actions: expected shape {(rows, mask_size)}, got {allowed.shape}")
            if found := actions.first_without_choice(allowed):
                row, text = found
                raise InvalidRow(f"action mask: {text}", row)
        indices = self._indices(agent_indices, rows)
        if self._member is not None and self._padding is not None:
            sensors, allowed = self._padding.pad(self._member.number, sensors, allowed)
        selected = self._selected(sensors, indices, groups)
        return ActRequest(selected, allowed, np.zeros((rows, 0), np.float32), deterministic)

    def decide(self, request: ActRequest) -> tuple[ActionBatch, NDArray[np.float32]]:
        """Returns what ``predict`` does, for a request with memories [M, memory_size]."""
        decisions = self._actor.act(request)
        own = self.spec.action_spec
        actions = ActionBatch(
            self._actor.env_actions(decisions)[:, : own.continuous_size],
            decisions.discrete_actions[:, : own.discrete_size].astype(np.int32),
        )
        return actions, decisions.memories

    def value(self, observations: Sequence[ArrayLike] | NDArray[Any]) -> NDArray[np.float32] | None:
        """The expected return of M agents, by the critic or by the value of the best action. Shape [M].

        None for a policy with a memory or of a heterogeneous group, and for trainer types whose critic looks at more
        than an agent's own observation. Takes ``observations`` as ``act`` does.

        Raises:
            ValueError: arrays that do not fit the behavior.
        """
        if self._member is not None or self._selector.num_agents or self.communicates:
            return None
        sensors = self._sensors(observations)
        return self._actor.values(self._selected(sensors, None, None))

    @overload
    def wrap(self, env: AgentEnvironment, *, agents: Collection[Any] | None = ...) -> PettingZooPolicy: ...
    @overload
    def wrap(self, env: Any) -> GymPolicy: ...
    def wrap(self, env: Any, *, agents: Collection[Any] | None = None) -> GymPolicy | PettingZooPolicy:
        """Returns the policy for the native observations and actions of a Gymnasium or PettingZoo environment.

        Observations and actions are converted as in training: the bounds of a Box, the start of a Discrete, the order
        of a Dict and the layout of pictures. So stepping the environment by hand gives the results of ``evaluate``.

        Args:
            env: an environment, or a vector environment, of which only the spaces are used and the method that returns
                action masks, if it has one; or one of PettingZoo.
            agents: with PettingZoo, the agents of the policy, if the environment does not determine their behavior.

        Raises:
            UserError: an object without spaces, or with others than the policy was trained on; or Gymnasium is missing.
        """
        try:
            from trainer_service.running.policy.gym_policy import GymPolicy  # of an extra
            from trainer_service.running.policy.pettingzoo_policy import PettingZooPolicy
        except ModuleNotFoundError as error:
            if error.name != "gymnasium":
                raise
            raise UserError(f"Gymnasium is not installed; run: {install_hint('gym')}") from None
        if hasattr(env, "possible_agents"):
            return PettingZooPolicy(by_behavior({self.behavior: self}), env, agents)
        if agents is not None:
            raise UserError(f"agents: expected an environment of PettingZoo, got {env!r:.80}")
        return GymPolicy(self, env)

    def draw_from(self, stream: torch.Generator) -> None:
        """Draws actions from a random stream that others may share, from now on."""
        self._actor = self._actor.frozen(stream)

    def network(self) -> ExportedNetwork:
        """Returns a copy of the deciding network, for export."""
        network = self._actor.policy_network()
        network.input_sensors = self._selector.input_sensors
        return network if self._member is None else self._member.network(network)

    @property
    def inputs(self) -> BehaviorSpec:
        """Inputs of an exported model: the sensors, and the agent index where it is needed."""
        return self._selector.inputs if self._member is None else self._member.inputs

    def _indices(self, given: ArrayLike | None, rows: int) -> NDArray[np.int64] | None:
        """Returns the agents' indices in their whole group; None where the policy does not need them."""
        if given is None and self.num_agents:
            raise ValueError(
                f"the policy of behavior '{self.behavior}' tells {self.num_agents} agents of a group apart: "
                "say their agent_indices"
            )
        if not self._selector.num_agents:
            return None
        indices = None if given is None else _int_array("agent_indices", given, rows)
        return indices if self._member is None else self._member.group_indices(indices, rows)

    def _selected(
        self, sensors: list[Observation], agent_indices: NDArray[np.int64] | None, groups: ArrayLike | None
    ) -> list[Observation]:
        """Returns the sensors that the learner was shown, with agent indices where it needs them."""
        if agent_indices is None:
            return [sensors[sensor] for sensor in self._selector.kept_sensors]
        rows = len(sensors[0])
        group_ids = np.zeros(rows, np.int64) if groups is None else _int_array("groups", groups, rows)
        if self.communicates and len(np.unique(np.stack([group_ids, agent_indices]), axis=1).T) < rows:
            raise ValueError(
                f"agent_indices: the policy of behavior '{self.behavior}' lets the agents of a group see each other's "
                "observations, and two of a group have the same index; say groups where there are several"
            )
        return self._selector.rows(sensors, agent_indices, group_ids)

    def _previous_memories(
        self, memories: NDArray[np.float32] | None, episode_starts: ArrayLike | None, rows: int
    ) -> NDArray[np.float32]:
        """Returns the policy's memories before this step; those of the critic are not kept here."""
        shape = (rows, self.memory_size)
        memories_in = np.zeros(shape, np.float32) if memories is None else np.array(memories, np.float32)
        if memories_in.shape != shape:
            raise ValueError(f"memories: expected shape {shape}, got {memories_in.shape}")
        if episode_starts is not None:
            starts = np.asarray(episode_starts, np.bool_)
            if starts.shape != (rows,):
                raise ValueError(f"episode_starts: expected shape {(rows,)}, got {starts.shape}")
            memories_in[starts] = 0.0
        if not np.isfinite(memories_in).all():
            row = int(np.argwhere(~np.isfinite(memories_in))[0][0])
            raise InvalidRow("memories: expected finite numbers, as predict() returned them", row)
        return memories_in

    def _sensors(self, observations: Sequence[ArrayLike] | NDArray[Any]) -> list[Observation]:
        specs = self.spec.observation_specs
        is_array = isinstance(observations, np.ndarray | torch.Tensor)
        given: list[Any] = [observations] if is_array else list(observations)
        if len(given) != len(specs):
            raise ValueError(f"expected {len(specs)} observation arrays, got {len(given)}")
        sensors = [_observation(array, spec) for array, spec in zip(given, specs, strict=True)]
        for spec, array in zip(specs, sensors, strict=True):
            if array.ndim == 0 or array.shape[1:] != spec.shape or len(array) != len(sensors[0]):
                rows = "M" if array is sensors[0] else len(sensors[0])
                expected = ", ".join(map(str, (rows, *spec.shape)))
                raise ValueError(f"sensor '{spec.name}': expected shape ({expected}), got {array.shape}")
            if array.dtype != np.uint8 and not np.isfinite(array).all():
                row, *place = np.argwhere(~np.isfinite(array))[0]
                odd = array[(row, *place)]
                raise InvalidRow(f"sensor '{spec.name}': expected finite numbers, got {odd}", int(row))
        return sensors


def _int_array(name: str, given: ArrayLike, rows: int) -> NDArray[np.int64]:
    numbers = np.asarray(given, np.int64)
    if numbers.shape != (rows,):
        raise ValueError(f"{name}: expected shape {(rows,)}, got {numbers.shape}")
    return numbers


def _observation(given: ArrayLike, sensor: ObservationSpec) -> Observation:
    """Converts one sensor: bytes stay bytes in a picture, and become floats elsewhere.

    Raises ValueError for a picture of whole numbers that are no bytes.
    """
    array = np.asarray(given)
    if len(sensor.shape) == 3 and array.dtype.kind in "iu":
        if array.size and not 0 <= array.min() <= array.max() <= 255:
            raise ValueError(
                f"sensor '{sensor.name}': expected bytes, or floats from 0 to 1, got {array.max()}"
            )
        return np.ascontiguousarray(array, np.uint8)
    return np.ascontiguousarray(array, np.float32)


def by_behavior(policies: Mapping[str, Policy]) -> dict[str, Policy]:
    """Policies by the behaviors that simulators have: in place of a group's, those of its members.

    Raises UserError for a group whose agents see each other's observations, which its members apart do not.
    """
    found: dict[str, Policy] = {}
    for name, policy in policies.items():
        if policy.members and policy.communicates:
            raise UserError(
                f"the agents of team '{name}' tell each other what they see, and cannot act apart"
            )
        found |= policy.parts() if policy.members else {name: policy}
    return found


def load_policy(
    run: str | os.PathLike[str],
    behavior: str | None = None,
    *,
    checkpoint: str | int = "last",
    device: str = "cpu",
    seed: int = 0,
) -> Policy:
    """Loads a policy of a run.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training.
        behavior: which of its behaviors, a member of a heterogeneous group among them; may be left out if it has
            only one. The policy of a group takes its members' observations padded, as ``spec`` says.
        checkpoint: ``last``, ``best``, a step or a path, as in ``evaluate``.

    Raises:
        UserError: no such run or behavior, or a damaged checkpoint.
    """
    found = chosen_checkpoints(run_path(run), checkpoint)
    if behavior is None and len(found) == 1:
        behavior = next(iter(found))
    if behavior in found:
        return Policy.load(found[behavior], device=device, seed=seed)
    members: list[str] = []
    for path in found.values() if behavior is not None else ():
        loaded = load_checkpoint(path)
        names = [member.behavior for member in loaded.spec.members]
        if behavior in names:
            return Policy(loaded, device=device, seed=seed).member(behavior)
        members += names
    wanted = "one of several behaviors must be named" if behavior is None else f"no behavior '{behavior}'"
    raise UserError(f"'{os.fspath(run)}': {wanted}; it has {', '.join([*found, *members])}")


def random_policy(behavior: str, spec: BehaviorSpec, seed: int = 0) -> Policy:
    """A policy that does anything that is allowed."""
    return Policy(Checkpoint(behavior, 0, spec, TrainerSettings(trainer_type="random"), {}), seed=seed)


def checkpoints_of(run: Path) -> dict[str, Path]:
    """Finds the newest checkpoint of every behavior in a run's folder, by behavior.

    Raises:
        UserError: there is none.
    """
    found = RunLayout(run).states()
    if not found and not run.exists():
        raise UserError(missing_run(run.parent, run.name))
    if not found:
        raise UserError(f"'{run}' holds no checkpoint (no */{NEWEST}); expected the folder of a run")
    return found


def chosen_checkpoints(run: Path, which: str | int) -> dict[str, Path]:
    """Finds the chosen checkpoint of every behavior in a run's folder, by behavior.

    Args:
        run: the folder.
        which: ``last`` for the newest ones, ``best`` for those with the best score in the run's evaluations, a step
            (see ``RunLayout.checkpoints_of_step``), or the path of one behavior's file; the others are the newest then.

    Raises:
        UserError: there is none of that kind.
    """
    newest, which = checkpoints_of(run), str(which)
    if which == "last":
        return newest
    if which == "best":
        return RunLayout(run).best_checkpoints(newest)
    if which.isdecimal():
        return RunLayout(run).checkpoints_of_step(list(newest), int(which))
    path = Path(which)
    return {**newest, load_checkpoint(path).behavior: path}
