"""The features of an environment that the rules decide by."""

from __future__ import annotations

from dataclasses import dataclass

from unity_bridge.specs import (
    ACHIEVED_GOAL,
    DESIRED_GOAL,
    GLOBAL_STATE,
    ActionSpec,
    BehaviorSpec,
    ObservationSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorFeatures:
    """Features of one behavior, from its declaration and from an episode or more of random actions."""

    name: str
    """The behavior's name, without a team id."""

    spec: BehaviorSpec

    agents: int = 1
    """The most agents that acted at once."""

    team_ids: tuple[int, ...] = (0,)
    """The team ids that share the behavior's name."""

    group_size: int = 0
    """The most agents of this behavior in one group; 0 without groups."""

    members_leave: bool = False
    """Whether agents terminate while other agents of their group continue."""

    shared_rewards: float = 0.0
    """The share of the rewards' variance that all agents of a group have in common."""

    length: float = 1.0
    """The mean length of an episode, in decisions of an agent."""

    longest: int = 1
    """The length of the longest episode, unfinished ones included."""

    episodes: int = 0
    """Episodes that ended."""

    truncated: float = 0.0
    """The share of episodes that ended by truncation."""

    reward_scale: float = 1.0
    """The root mean square of an agent's rewards for one decision, group rewards included."""

    density: float = 1.0
    """The share of decisions with another reward than the most frequent one."""

    events: float = 1.0
    """The share of episodes that have such a reward."""

    survival: bool = False
    """Whether the most frequent reward is positive and episodes terminate: a longer life earns more."""

    mean_reward: float = 0.0
    """The mean of an agent's rewards for one decision."""

    aliased: float = 0.0
    """The share of the rewards' variance that a memory may explain: equal observations and actions leave it open, and
    the first observation of the episode, or other agents of the group, account for it."""

    observation_scale: float = 1.0
    """The largest standard deviation or absolute mean of a number in vector observations."""

    is_binary: bool = False
    """Whether all numbers of vector observations are 0 or 1."""

    no_hindsight: str = ""
    """Why hindsight replay cannot replace the stated goals; empty where it can."""

    @property
    def actions(self) -> ActionSpec:
        """The declared actions."""
        return self.spec.action_spec

    @property
    def sensors(self) -> tuple[ObservationSpec, ...]:
        """The sensors that a policy sees."""
        return tuple(sensor for sensor in self.spec.observation_specs if sensor.name != GLOBAL_STATE)

    @property
    def has_global_state(self) -> bool:
        """Whether the simulator offers a central critic the state of the environment."""
        return any(sensor.name == GLOBAL_STATE for sensor in self.spec.observation_specs)

    @property
    def states_goals(self) -> bool:
        """Whether the environment states an achieved and a desired goal, and actions are continuous."""
        return self.is_continuous and {ACHIEVED_GOAL, DESIRED_GOAL} <= {
            sensor.name for sensor in self.sensors
        }

    @property
    def replaces_goals(self) -> bool:
        """Whether hindsight replay replaces stated goals."""
        return self.states_goals and not self.no_hindsight

    @property
    def picture_size(self) -> int:
        """The shortest side of all pictures, in pixels; 0 without pictures."""
        return min((min(sensor.shape[1:]) for sensor in self.sensors if sensor.is_picture), default=0)

    @property
    def vector_size(self) -> int:
        """Numbers in all observations that are no pictures."""
        return sum(sensor.size for sensor in self.sensors if not sensor.is_picture)

    @property
    def is_continuous(self) -> bool:
        """Whether all actions are continuous."""
        return self.actions.continuous_size > 0 and not self.actions.discrete_branches


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFeatures:
    """Features of an environment."""

    behaviors: tuple[BehaviorFeatures, ...]

    teams: tuple[tuple[str, ...], ...] = ()
    """Behaviors whose agents are members of the same groups, where these are several."""

    messages: int = 0
    """The simulator's messages that were looked at."""
