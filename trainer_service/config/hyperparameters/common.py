"""What every trainer type is tuned with, and what the others ask its settings about the learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

from trainer_service.config.network import NetworkSettings
from trainer_service.config.section import Location, Section
from trainer_service.config.values import (
    Flag,
    Positive,
    PositiveCount,
    ShapesWeights,
)

Schedule = Literal["constant", "linear"]
"""``linear`` falls from the given value towards a small floor at max_steps; ``constant`` stays."""


class Contradiction(NamedTuple):
    """A key that does not go with others of the same behavior."""

    location: Location
    """The key, from the behavior's section down."""

    expected: str
    """The values that the others leave room for, in words."""

    got: Any
    """The value that stands there."""


class Hyperparameters(Section):
    """What every trainer type has."""

    # What kind of learner this is, for everyone who would otherwise ask for its class.
    learns: ClassVar[bool] = True
    """Whether acting makes its policy better."""

    learns_from_replay: ClassVar[bool] = False
    """Whether it draws minibatches from a replay buffer."""

    learns_by_group: ClassVar[bool] = False
    """Whether it needs what a whole group did together."""

    communicates: ClassVar[bool] = False
    """Whether its agents decide from what everyone in their group sees."""

    needs_actions: ClassVar[bool] = True
    """Whether it refuses agents that only watch."""

    supports_memory: ClassVar[bool] = True
    """Whether ``network_settings.memory`` may be given."""

    supports_reward_models: ClassVar[bool] = True
    """Whether there may be other ``reward_signals`` than ``extrinsic``."""

    supports_cloning: ClassVar[bool] = True
    """Whether ``behavioral_cloning`` may be given."""

    supports_layer_norm: ClassVar[bool] = True
    """Whether ``network_settings.layer_norm`` may be true."""

    batch_size: PositiveCount = 1024
    """Rows of one gradient step."""

    buffer_size: PositiveCount = 10240
    """On-policy: rows collected before an update. Off-policy: rows that the replay buffer holds."""

    learning_rate: Positive = 3e-4
    """Step size of Adam at the start."""

    learning_rate_schedule: Schedule = "linear"
    """How the learning rate moves over max_steps."""

    max_grad_norm: Positive | None = None
    """Gradients longer than this are scaled down to it; null never does. Not in ML-Agents."""

    @property
    def num_agents(self) -> int:
        """Agents of a group that networks are made for; 1 where each agent learns for itself."""
        return 1

    @property
    def max_group_size(self) -> int | None:
        """Most agents that a group may have; None where any number may be."""
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
        """Settings for groups of this size where none was given; itself where one was, or where none matters."""
        return self

    def contradictions(self, network: NetworkSettings, *, clones: bool) -> Iterator[Contradiction]:
        """Keys that do not go with others. clones: whether there is a ``behavioral_cloning``."""
        if network.memory is not None and network.memory.sequence_length > self.batch_size:
            location = ("network_settings", "memory", "sequence_length")
            most = f"at most the batch_size of {self.batch_size}"
            yield Contradiction(location, most, network.memory.sequence_length)

    @classmethod
    def unknown_key(cls, key: str, siblings: Mapping[str, type[Section]]) -> str:
        owners = [kind for kind, model in siblings.items() if key in model.model_fields]
        if not owners:
            return super().unknown_key(key, siblings)
        mine = " or ".join(kind for kind, model in siblings.items() if model is cls)
        return f"unknown key: '{key}' is a key of {', '.join(owners)}, not of {mine}"


class GroupSettings(Section):
    """What learners of whole groups have in common. Not in ML-Agents."""

    learns_by_group: ClassVar[bool] = True

    group_size: ShapesWeights[PositiveCount | None] = None
    """Most agents of a group; null means as many as the first message shows in one."""

    share: ShapesWeights[Literal["full", "none"]] = "full"
    """``full``: one actor for all agents of the behavior. ``none``: one for each agent index in the group."""

    agent_ids: ShapesWeights[Flag] = False
    """With one actor for all: whether it is told the agent's index in its group."""

    @property
    def num_agents(self) -> int:
        return self.group_size or 1

    @property
    def max_group_size(self) -> int | None:
        return self.num_agents

    @property
    def needs_agent_index(self) -> bool:
        return self.share == "none" or self.agent_ids

    def with_group_size(self, group_size: int) -> Self:
        return self if self.group_size is not None else self.model_copy(update={"group_size": group_size})
