"""Hyperparameters of all trainer types, and the attributes that tell kinds of learners apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, WithJsonSchema

from trainer_service.config.network import NetworkSettings
from trainer_service.config.section import Location, NameIn, Remark, Section
from trainer_service.config.values import (
    Flag,
    NonNegative,
    Positive,
    PositiveCount,
    ShapesWeights,
)
from unity_bridge.plugins import PluginGroup

Schedule = Literal["constant", "linear", "exponential"]
"""``linear`` falls from the given value towards a small floor at max_steps; ``constant`` stays; ``exponential``, which
ML-Agents does not have, falls by the same factor at every step, to a hundredth of the given value at max_steps."""

LearningRateSchedule = Literal["constant", "linear", "exponential", "adaptive"]
"""``adaptive`` follows the policy's KL divergence, which learners on policy measure; the others as in ``Schedule``."""

Sharing = Literal["full", "group", "none"]
"""Which agents share a network: all, those of one member behavior of a heterogeneous group, or none."""


def _as_reward_mode(value: Any) -> Any:
    """Reads ``group_sum`` as ``team_sum``, the name that configurations are saved with."""
    return "team_sum" if value == "group_sum" else value


RewardMode = Annotated[
    Literal["individual", "team_sum"],
    WithJsonSchema({"type": "string", "enum": ["individual", "group_sum", "team_sum"]}),
    BeforeValidator(_as_reward_mode),
]
"""The rewards that each agent of a group learns from: its own and its group's, or the sum of everyone's."""

SummedRewards = Annotated[
    Literal["team_sum"],
    WithJsonSchema({"type": "string", "enum": ["group_sum", "team_sum"]}),
    BeforeValidator(_as_reward_mode),
]


OPTIMIZER_TYPES = ("adam", "adamw")
"""The built-in optimizers."""

OPTIMIZER_PLUGINS = PluginGroup("optimizer", "trainer_service.optimizers", frozenset(OPTIMIZER_TYPES))
"""Optimizers of other distributions: each makes a ``torch.optim.Optimizer`` of parameters."""


OptimizerName = Annotated[str, NameIn(OPTIMIZER_PLUGINS, OPTIMIZER_TYPES)]
"""The name of an optimizer. That of a plugin is known by the distribution's metadata: nothing is imported here."""


class Contradiction(NamedTuple):
    """A key that contradicts others of the same behavior."""

    location: Location
    """Path of the key below the behavior's section."""

    expected: str
    """Values that the other keys allow, in words."""

    got: Any
    """Value of the key."""


class Hyperparameters(Section):
    """Hyperparameters of all trainer types."""

    # Attributes of the learner, so that other modules need not know its class.
    learns: ClassVar[bool] = True
    """Whether the policy improves by acting."""

    learns_from_replay: ClassVar[bool] = False
    """Whether minibatches come from a replay buffer."""

    learns_by_group: ClassVar[bool] = False
    """Whether trajectories of a group are needed together."""

    communicates: ClassVar[bool] = False
    """Whether agents decide from the observations of their whole group."""

    needs_actions: ClassVar[bool] = True
    """Whether a behavior without actions is refused."""

    supports_memory: ClassVar[bool] = True
    """Whether ``network_settings.memory`` may be given."""

    supports_reward_models: ClassVar[bool] = True
    """Whether there may be other ``reward_signals`` than ``extrinsic``."""

    one_value: ClassVar[bool] = False
    """Whether one value, of one gamma, is learned of all ``reward_signals`` together."""

    supports_cloning: ClassVar[bool] = True
    """Whether ``behavioral_cloning`` may be given."""

    supports_layer_norm: ClassVar[bool] = True
    """Whether ``network_settings.layer_norm`` may be true."""

    draws_actions: ClassVar[bool] = True
    """Whether the policy is a distribution that actions are drawn from, so that ``deterministic`` means something."""

    unused: ClassVar[Mapping[str, str]] = {}
    """Keys that have no effect, with the reason and the key to write instead."""

    supports_stale_rollouts: ClassVar[bool] = False
    """Whether the trainer can learn from rollouts of an older policy."""

    batch_size: PositiveCount = 1024
    """Rows of one gradient step."""

    buffer_size: PositiveCount = 10240
    """On-policy: rows collected before an update. Off-policy: rows that the replay buffer holds."""

    learning_rate: Positive = 3e-4
    """Step size of Adam at the start."""

    learning_rate_schedule: LearningRateSchedule = "linear"
    """How the learning rate moves over max_steps; ``exponential`` ends at a hundredth of it."""

    max_grad_norm: Positive | None = None
    """Gradients longer than this are scaled down to it; null never does. Not in ML-Agents."""

    weight_decay: NonNegative = 0.0
    """Factor of the weights that is added to their gradient, an L2 penalty as in torch's Adam; networks of reward
    signals have none. Not in ML-Agents."""

    optimizer: ShapesWeights[OptimizerName] = "adam"
    """Optimizer of the policy's and critic's networks. ``adamw`` subtracts weight_decay from the weights themselves
    (Loshchilov and Hutter 2019). Reward signals, cloning and sac's temperature have Adam. Not in ML-Agents."""

    @property
    def relabels_goals(self) -> bool:
        """Whether the replay buffer replaces goals, which takes the environment's own reward function."""
        return False

    @property
    def num_agents(self) -> int:
        """Number of agents of a group that networks are built for; 1 where each agent learns for itself."""
        return 1

    @property
    def max_group_size(self) -> int | None:
        """Limit of the agents of a group; None where there is none."""
        return None

    @property
    def needs_agent_index(self) -> bool:
        """Whether the policy is shown an agent's index in its group."""
        return False

    @property
    def needs_global_state(self) -> bool:
        """Whether a critic or mixer is shown the simulator's sensor ``global_state``."""
        return False

    def with_group_size(self, group_size: int) -> Self:
        """Returns settings for groups of this size, or itself where a size is set or does not matter."""
        return self

    def with_sharing(self, *, team: bool) -> Self:
        """Returns settings that say which agents share networks. team: whether the group is heterogeneous."""
        return self

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        """Yields keys that contradict others."""
        yield from ()

    def remarks(self) -> Iterator[Remark]:
        """Yields settings that are accepted but have no effect or another one."""
        for key, reason in self.unused.items():
            if self.differs(key):
                yield Remark((key,), f"has no effect: {reason}")

    @classmethod
    def unknown_key(cls, key: str, siblings: Mapping[str, type[Section]]) -> str:
        owners = [kind for kind, model in siblings.items() if key in model.model_fields]
        if not owners:
            return super().unknown_key(key, siblings)
        mine = " or ".join(kind for kind, model in siblings.items() if model is cls)
        return f"unknown key: '{key}' is a key of {', '.join(owners)}, not of {mine}"


class GroupSettings(Section):
    """Hyperparameters of all learners of groups. Not in ML-Agents."""

    learns_by_group: ClassVar[bool] = True

    default_share: ClassVar[Sharing] = "full"
    """``share`` where it is null and agents are of one behavior."""

    default_team_share: ClassVar[Sharing] = "group"
    """``share`` where it is null and several behaviors form a heterogeneous group."""

    group_size: ShapesWeights[PositiveCount | None] = None
    """Limit of the agents of a group; null: as many as the first message has in one."""

    share: ShapesWeights[Sharing | None] = None
    """``full``: one actor for all agents. ``group``: one for each behavior of a heterogeneous group. ``none``: one for
    each agent index in the group. Null: ``group`` in heterogeneous groups, else ``full``."""

    agent_ids: ShapesWeights[Flag] = False
    """With one actor for several agents: whether it sees the agent's index in its group. In heterogeneous
    groups the one actor for all always does."""

    @property
    def num_agents(self) -> int:
        return self.group_size or 1

    @property
    def max_group_size(self) -> int | None:
        return self.num_agents

    @property
    def sharing(self) -> Sharing:
        """Which agents share networks, where agents are of one behavior unless ``share`` says otherwise."""
        return self.share or self.default_share

    @property
    def needs_agent_index(self) -> bool:
        return self.sharing != "full" or self.agent_ids

    def with_sharing(self, *, team: bool) -> Self:
        share = self.share or (self.default_team_share if team else self.default_share)
        if share == "group" and not team:
            share = "full"  # one behavior, one kind
        ids = self.agent_ids or (team and share == "full")
        return self.model_copy(update={"share": share, "agent_ids": ids})

    def with_group_size(self, group_size: int) -> Self:
        return self if self.group_size is not None else self.model_copy(update={"group_size": group_size})
