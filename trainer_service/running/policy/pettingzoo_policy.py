"""A trained policy in the loop of a PettingZoo environment: observations in, actions out, both by agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.observation_selection import sensors_except, with_sensors
from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from trainer_service.running.policy.gym_policy import NO_METHOD, ArrayPolicy
from trainer_service.running.runs.checkpoint import spec_mismatch
from unity_bridge.simulators.foreign.environment import Agent, AgentStep, copied
from unity_bridge.simulators.foreign.masks import mask_method, mask_of_info
from unity_bridge.simulators.foreign.pettingzoo import PettingZooBase
from unity_bridge.simulators.foreign.roles import Role, assign_roles
from unity_bridge.simulators.objects import name_of
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import BehaviorSpec


class AgentEnvironment(Protocol):
    """An environment of PettingZoo, parallel or in turns."""

    possible_agents: list[Any]


class PettingZooPolicy:
    """A policy on the agents of one environment, as ``Policy.wrap`` makes it.

    It keeps the memory and the index of each agent, as training does: both begin with the agent's first action and end
    when the agent leaves ``env.agents``. Agents of behaviors without a policy here get no action. A copy, also in
    another process, does not know the environment: it acts for every agent with an observation.
    """

    def __init__(
        self, policies: Mapping[str, ArrayPolicy], env: Any, agents: Collection[Agent] | None = None
    ) -> None:
        """Reads the spaces of an environment's agents.

        Args:
            policies: by behavior.
            env: parallel, or in turns.
            agents: those to act for; None for those whose behavior, named as in training, has a policy.

        Raises:
            UserError: no agent is known to be of a policy's behavior, or a policy was trained on other spaces.
            SceneError: a space that no policy takes.
        """
        self._env = env
        self._code = ForeignCode(f"policy of behavior {' and '.join(map(repr, policies))}")
        description = PettingZooBase(env, self._code).description
        known = description.spaces
        if unknown := [agent for agent in agents or () if agent not in known]:
            raise UserError(f"agents: expected some of {', '.join(map(str, known))}, got '{unknown[0]}'")
        asked = {agent: pair for agent, pair in known.items() if agents is None or agent in agents}
        roles = assign_roles(replace(description, spaces=asked), name_of(env), self._code)
        pairs = _paired(policies, roles, said=agents is not None)
        self._parts = [_Part(policy, role) for policy, role in pairs]
        self._mask_method = mask_method(env, arguments=1)
        self._has_method = self._mask_method is not None

    def reset(self) -> None:
        """Begins an episode: forgets every agent's memory and index. To be called after the environment's reset."""
        for part in self._parts:
            part.keep_only(())

    def act(
        self,
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any] | None = None,
        *,
        deterministic: bool = True,
    ) -> dict[Any, Any]:
        """The actions of the agents that are there.

        Args:
            observations: by agent, as ``env.reset`` and ``env.step`` return them. Agents that are not in ``env.agents``
                any more are passed over.
            infos: by agent, as returned beside; an ``action_mask`` in them counts, as one in an observation does, or
                the environment's own method.
            deterministic: the likeliest action instead of one that is drawn.

        Returns:
            Actions for ``env.step``, in the agents' action spaces.

        Raises:
            SceneError: an observation that is no member of its space, or a mask that does not fit.
            ValueError: an observation that is not finite.
        """
        there = list(getattr(self._env, "agents", observations))
        observations = copied(observations)  # the environment may write into them when it is asked for masks
        actions: dict[Any, Any] = {}
        for part in self._parts:
            part.keep_only(there)
            steps = [
                AgentStep(agent, observations[agent], self._mask_of(agent, (infos or {}).get(agent)))
                for agent in part.role.agents
                if agent in there and agent in observations
            ]
            if steps:
                actions |= part.act(steps, deterministic=deterministic)
        # In the order of the environment's agents, which some environments rely on.
        return {agent: actions[agent] for agent in there if agent in actions}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_env": None, "_mask_method": None}

    def _mask_of(self, agent: Agent, info: Any) -> Any:
        mask = mask_of_info(info, self._code)
        if mask is None and self._mask_method is not None:
            return copied(self._code.call("the method of action masks", self._mask_method, agent))
        if mask is None and self._has_method:
            self._code.warn("method", NO_METHOD.format("infos to act()"))
        return mask


@dataclass(slots=True)
class _Part:
    """The agents of one behavior, and its policy."""

    policy: ArrayPolicy
    role: Role
    memories: dict[Agent, NDArray[np.float32]] = field(default_factory=dict)
    indices: dict[Agent, int] = field(default_factory=dict)
    """Agent indices in the group, by agent: the lowest that was free when the agent came."""

    def keep_only(self, agents: Collection[Agent]) -> None:
        """Forgets all other agents."""
        for agent in [agent for agent in self.indices if agent not in agents]:
            del self.indices[agent]
            self.memories.pop(agent, None)

    def act(self, steps: Sequence[AgentStep], *, deterministic: bool) -> dict[Agent, Any]:
        for step in steps:
            if step.agent not in self.indices:
                taken = set(self.indices.values())
                self.indices[step.agent] = min(set(range(len(taken) + 1)) - taken)
        policy, fresh = self.policy, np.zeros(self.policy.memory_size, np.float32)
        actions, memories = policy.predict(
            self._sensors(steps),
            np.stack([self.memories.get(step.agent, fresh) for step in steps]),
            self.role.masks.read(steps, deciding=True, refuses=True),
            agent_indices=[self.indices[step.agent] for step in steps] if policy.num_agents else None,
            deterministic=deterministic,
        )
        built = self.role.interface.actuator.build(
            actions.continuous.astype(np.float64), actions.discrete.astype(np.int64)
        )
        self.memories |= {step.agent: memory for step, memory in zip(steps, memories, strict=True)}
        return {step.agent: action for step, action in zip(steps, built, strict=True)}

    def _sensors(self, steps: Sequence[AgentStep]) -> list[NDArray[Any]]:
        """The observations of the agents. The state for critics is zeros: no policy decides from it."""
        own = iter(self.role.interface.sensors)
        seen = [step.observation for step in steps]
        return [
            np.zeros((len(steps), *sensor.shape), np.float32)
            if role_of(sensor) is SensorRole.GLOBAL_STATE
            else next(own).read_all(seen)
            for sensor in self.policy.spec.observation_specs
        ]


def _paired(
    policies: Mapping[str, ArrayPolicy], roles: Sequence[Role], *, said: bool
) -> list[tuple[ArrayPolicy, Role]]:
    """The roles with their policies: by the behavior's name; or, with one policy, the only role that may be meant.

    said: whether the roles are of agents that the user named.
    """
    pairs = [(policies[name], role) for role in roles if (name := _name(role)) in policies]
    if not pairs and len(policies) == 1:
        [policy] = policies.values()
        fitting = [role for role in roles if _mismatch(policy, role) is None]
        meant = roles if said or len(roles) == 1 else fitting if len(fitting) == 1 else ()
        pairs = [(policy, role) for role in meant]
    if not pairs:
        there = "; ".join(f"'{_name(role)}' ({', '.join(map(str, role.agents))})" for role in roles)
        raise UserError(
            f"no agent of the environment has a behavior called {' or '.join(map(repr, policies))}; they have {there}: "
            "say which agents the policy acts for, wrap(env, agents=[...])"
        )
    for policy, role in pairs:
        if changed := _mismatch(policy, role):
            raise UserError(
                f"agent '{role.agents[0]}' is not what the policy of behavior '{policy.behavior}' was trained for: "
                f"{changed}"
            )
    return pairs


def _name(role: Role) -> str:
    return role.behavior.partition("?")[0]


def _mismatch(policy: ArrayPolicy, role: Role) -> str | None:
    spec = with_sensors(policy.spec, sensors_except(policy.spec, {SensorRole.GLOBAL_STATE}))
    sensors = tuple(sensor.spec for sensor in role.interface.sensors)
    return spec_mismatch(spec, BehaviorSpec(sensors, role.interface.actuator.spec))
