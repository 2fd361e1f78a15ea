"""Acting with a frozen policy: the memory and the group index of each agent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer_service.errors import UserError
from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.group_trajectories import group_keys
from trainer_service.learning.rollout.recurrent_states import RecurrentStates
from trainer_service.running.policy import Policy
from unity_bridge.steps import ActionBatch, StepBatch


class PolicyActor:
    """A frozen policy with the recurrent state and the group index of each of its agents."""

    def __init__(self, policy: Policy, deterministic: bool) -> None:
        self._policy = policy
        self._deterministic = deterministic
        self._recurrent_states = RecurrentStates(policy.memory_size)
        self._allocator = AgentIndexAllocator(policy.spec.members)

    def act(self, simulator: int, team: int, batch: StepBatch) -> ActionBatch:
        """Returns actions for all waiting agents. Raises UserError if a group is larger than in training."""
        rows, memories = self._recurrent_states.get(simulator, team, batch)
        first = batch.num_terminal
        agent_indices = self._agent_indices_of(simulator, team, batch) if self._policy.num_agents else None
        if first == len(batch):
            return ActionBatch.zeros(0, self._policy.spec.action_spec)
        actions, memories = self._policy.predict(
            [sensor[first:] for sensor in batch.observations],
            memories,
            batch.allowed_actions[first:],
            agent_indices=agent_indices,
            groups=group_keys(batch, team)[first:] if self._policy.communicates else None,
            deterministic=self._deterministic,
        )
        self._recurrent_states.set(rows, memories)
        return actions

    def drop(self, simulator: int) -> None:
        """Forgets the agents of a simulator that was reset."""
        self._recurrent_states.drop(simulator)
        self._allocator.drop(simulator)

    def _agent_indices_of(self, simulator: int, team: int, batch: StepBatch) -> NDArray[np.int64]:
        """Returns the agent indices of all waiting agents."""
        try:
            agent_indices = self._allocator.assign(simulator, team, batch).agent_indices[batch.num_terminal :]
        except ValueError as error:
            raise UserError(f"team '{self._policy.behavior}': {error}") from None
        largest, known = int(agent_indices.max(initial=-1)) + 1, self._policy.num_agents
        if largest > known:
            raise UserError(
                f"behavior '{self._policy.behavior}': got a group of at least {largest} agents; its policy was "
                f"trained for {known}, by index"
            )
        return agent_indices
