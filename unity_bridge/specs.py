"""Records of a behavior's observations and actions, as its simulator declared them.

The field names are those of ``mlagents_envs.base_env``. The records are ours because the published package
ships no types, differs between versions, and because these check themselves.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unity_bridge.untrusted_text import quoted


class DimensionProperty(enum.IntFlag):
    """Flags of one dimension of an observation: what may be assumed about it."""

    UNSPECIFIED = 0
    NONE = 1
    TRANSLATIONAL_EQUIVARIANCE = 2
    VARIABLE_SIZE = 4


PICTURE = (
    DimensionProperty.NONE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
)
"""The dimensions of a picture: channels, then rows from the top, then columns."""


FloatOrder = Literal["hwc", "chw"]
"""The order of a picture's floats in messages: height, width and channels, or channels, height and width."""

PictureLayout = Literal["auto", "hwc", "chw"]
"""The float order of pictures that are declared as (C, H, W): one of the two, or by the simulator's version."""


class ObservationType(enum.IntEnum):
    """Whether a sensor is an ordinary input or states the agent's goal."""

    DEFAULT = 0
    GOAL_SIGNAL = 1


LONGEST_SHOWN = 24
"""Numbers of a long list that a message repeats."""

MOST_DIMENSIONS = 8
"""Most dimensions of one observation from outside; ML-Agents knows up to three."""

GLOBAL_STATE = "global_state"
"""Name of the sensor by which a simulator tells a central critic what agents must not see: no policy gets it."""

ACHIEVED_GOAL, DESIRED_GOAL = "achieved_goal", "desired_goal"
"""Names of the sensors of Gymnasium's goal environments that show the achieved goal and the one to achieve."""


@dataclass(frozen=True, slots=True)
class ObservationSpec:
    """The declaration of one sensor."""

    name: str

    shape: tuple[int, ...]
    """Without the batch dimension: (n,) vector, (entities, size) buffer, (C, H, W) picture."""

    dimension_property: tuple[DimensionProperty, ...] = ()
    """One per dimension; empty where an old simulator said nothing."""

    observation_type: ObservationType = ObservationType.DEFAULT

    float_order: FloatOrder = field(default="chw", compare=False)
    """The order in which its simulator writes the floats of a picture. Arrays are (C, H, W) all the same; this is known
    for recordings of the simulator, which do not say it."""
    added: bool = False
    """Whether a trainer adds it to a simulator's own sensors, which may have the same name."""

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape):
            raise ValueError(
                f"sensor {quoted(self.name)}: every dimension must be at least 1, got {self.shape}"
            )
        if self.dimension_property and len(self.dimension_property) != len(self.shape):
            raise ValueError(
                f"sensor {quoted(self.name)}: {len(self.dimension_property)} dimension properties "
                f"for {len(self.shape)} dimensions"
            )

    @property
    def size(self) -> int:
        """Number of floats of one observation."""
        return math.prod(self.shape)

    @property
    def is_picture(self) -> bool:
        """Rank 3, looks alike everywhere along its last two dimensions, or says nothing about itself."""
        if len(self.shape) != 3:
            return False
        if not any(self.dimension_property):
            return True
        return all(
            DimensionProperty.TRANSLATIONAL_EQUIVARIANCE in axis for axis in self.dimension_property[1:]
        )

    @property
    def is_entities(self) -> bool:
        """Rank 2, with rows that may be absent: an agent's list of things, in no order."""
        properties = self.dimension_property
        return len(self.shape) == 2 and bool(properties) and DimensionProperty.VARIABLE_SIZE in properties[0]


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """The actions of an agent at each decision: continuous numbers, choices from branches, or both."""

    continuous_size: int = 0

    discrete_branches: tuple[int, ...] = ()
    """Number of choices in each branch."""

    def __post_init__(self) -> None:
        if self.continuous_size < 0 or any(size < 1 for size in self.discrete_branches):
            shown = self.discrete_branches[:LONGEST_SHOWN]
            rest = f"… ({self.discrete_size} branches)" if self.discrete_size > LONGEST_SHOWN else ""
            raise ValueError(f"impossible action sizes: {self.continuous_size}, {shown}{rest}")

    @property
    def discrete_size(self) -> int:
        """Number of branches."""
        return len(self.discrete_branches)

    @property
    def mask_size(self) -> int:
        """Number of choices over all branches, in branch order: the length of an action mask."""
        return sum(self.discrete_branches)

    def choices_left(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether action masks leave a choice in each branch. allowed: [M, sum of branches]. Returns [M, branches]."""
        if not self.discrete_branches:
            return np.ones((len(allowed), 0), np.bool_)
        starts = np.cumsum((0, *self.discrete_branches[:-1]))
        left: NDArray[np.bool_] = np.logical_or.reduceat(allowed, starts, axis=1)
        return left

    def first_without_choice(self, allowed: NDArray[np.bool_]) -> tuple[int, str] | None:
        """The first row whose mask leaves a branch without a choice, and a text that names the branch, or None.

        allowed: as for ``choices_left``.
        """
        left = self.choices_left(allowed)
        if left.all():
            return None
        row, branch = np.argwhere(~left)[0].tolist()
        return row, f"no choice is left in branch {branch} of {self.discrete_branches}"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One behavior of a heterogeneous group: its sensors, its actions and its number of agents in a group."""

    behavior: str
    """Its name, as the simulator and exported models have it."""

    observation_specs: tuple[ObservationSpec, ...]
    """As its simulator declared them, in wire order."""

    action_spec: ActionSpec

    num_agents: int
    """The most agents of this behavior in one group."""

    def __post_init__(self) -> None:
        if self.num_agents < 1:
            raise ValueError(
                f"behavior {quoted(self.behavior)}: expected at least 1 agent, got {self.num_agents}"
            )


@dataclass(frozen=True, slots=True)
class BehaviorSpec:
    """Everything that a policy must know of a behavior before it can act for it."""

    observation_specs: tuple[ObservationSpec, ...]
    """In wire order, which Unity sorts by sensor name; index i is ``obs_i`` of an exported model."""

    action_spec: ActionSpec

    members: tuple[MemberSpec, ...] = ()
    """The members of a heterogeneous group, whose sensors and actions are padded to those above; empty otherwise."""

    @property
    def agent_members(self) -> tuple[int, ...]:
        """The number of the member that each agent index of a group belongs to: first all of the first member's."""
        return tuple(number for number, member in enumerate(self.members) for _ in range(member.num_agents))
