"""The ``hyperparameters`` of trainer types that learn from a replay buffer; ML-Agents has sac alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from trainer_service.config.hyperparameters.common import (
    Contradiction,
    GroupSettings,
    Hyperparameters,
    RewardMode,
    Schedule,
    Sharing,
    SummedRewards,
)
from trainer_service.config.network import NetworkSettings
from trainer_service.config.section import NameIn, Remark, Section
from trainer_service.config.values import (
    Count,
    Flag,
    NonNegative,
    Positive,
    PositiveCount,
    ShapesWeights,
    Share,
    Text,
    UnitInterval,
)
from unity_bridge.plugins import PluginGroup


class RandomSettings(Hyperparameters):
    """Random actions and no learning, as a baseline. None of its keys matters."""

    learns: ClassVar[bool] = False
    draws_actions: ClassVar[bool] = False
    unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        Hyperparameters.model_fields, "random actions learn nothing"
    )
    needs_actions: ClassVar[bool] = False
    supports_memory: ClassVar[bool] = False
    supports_reward_models: ClassVar[bool] = False
    supports_cloning: ClassVar[bool] = False
    supports_stale_rollouts: ClassVar[bool] = True


REPLAY_TYPES = ("uniform", "prioritized", "hindsight")
"""The built-in replay buffers."""

REPLAY_PLUGINS = PluginGroup("replay buffer", "trainer_service.replay_buffers", frozenset(REPLAY_TYPES))
"""Replay buffers of other distributions: each a class derived from ``TransitionReplay``."""


ReplayType = Annotated[str, NameIn(REPLAY_PLUGINS, REPLAY_TYPES)]
"""The name of a replay buffer. That of a plugin is known by the distribution's metadata: nothing is imported here."""


class ReplaySettings(Section):
    """How a minibatch is drawn from the replay buffer. Not in ML-Agents."""

    type: ReplayType = "uniform"
    """``prioritized`` draws transitions with large errors of the critic more often (Schaul et al. 2016). ``hindsight``
    replaces goals by goals that the agent achieved later (Andrychowicz et al. 2017), for Gymnasium's goal
    environments. The name of a plugin's buffer, too."""

    alpha: UnitInterval = 0.6
    """With ``prioritized``: how much the error counts; 0 draws uniformly, 1 in proportion."""

    beta: UnitInterval = 0.4
    """With ``prioritized``: how much of the bias this brings is corrected at the start; 1 is all of it."""

    beta_updates: Count = 5000
    """With ``prioritized``: updates over which beta rises to 1; 0 is there at once."""

    n_sampled_goal: PositiveCount = 4
    """With ``hindsight``: transitions with a replaced goal for each one that keeps its own."""

    goal_selection_strategy: Literal["future", "final", "episode"] = "future"
    """With ``hindsight``: the step of the same trajectory whose achieved goal is taken: a random one from the present
    on, the last, or a random one of all. A trajectory is an episode, or a part of time_horizon steps."""

    kwargs: dict[str, Any] | None = None
    """Keyword arguments of a plugin's buffer."""

    demo_path: Text | None = None
    """A .demo file or a folder of them, of which every minibatch holds steps with their recorded rewards (Ball et al.
    2023); null for none. For learners of single agents without memory."""

    demo_share: Share = 0.5
    """With ``demo_path``: the share of demonstrated steps in a minibatch, below 1."""

    def remarks(self) -> Iterator[Remark]:
        """Yields keys that differ from their defaults and have no effect with this type."""
        needs = {
            **dict.fromkeys(("alpha", "beta", "beta_updates"), "type: prioritized"),
            **dict.fromkeys(("n_sampled_goal", "goal_selection_strategy"), "type: hindsight"),
        }
        for key, wanted in needs.items():
            if f"type: {self.type}" != wanted and self.differs(key):
                yield Remark((key,), f"has no effect without {wanted}")
        if self.demo_path is None and self.differs("demo_share"):
            yield Remark(("demo_share",), "has no effect without demo_path")
        if self.type in REPLAY_TYPES and self.kwargs is not None:
            yield Remark(("kwargs",), f"has no effect with type: {self.type}, which is no plugin's")

    @property
    def draws_single_transitions(self) -> bool:
        """Whether it neither draws sequences and sums of n rewards, nor joint transitions of groups."""
        return self.type not in ("uniform", "prioritized")

    @property
    def priority_exponent(self) -> float | None:
        """``alpha`` where priorities count, None where all rows are drawn alike."""
        return self.alpha if self.type == "prioritized" else None


def _as_steps_per_update(validated: dict[str, Any]) -> float:
    steps: float = validated["steps_per_update"]
    return steps


class ReplayHyperparameters(Hyperparameters):
    """Hyperparameters of all learners from a replay buffer."""

    learns_from_replay: ClassVar[bool] = True
    supports_stale_rollouts: ClassVar[bool] = True

    batch_size: PositiveCount = 128
    """Rows of one gradient step, drawn from the replay buffer; for learners of groups a row is a joint step. With
    memory: batch_size / sequence_length whole sequences, fewer rows where episodes end before."""

    buffer_size: PositiveCount = 50000
    """Rows that the replay buffer holds; for learners of groups a row is a joint step."""

    learning_rate_schedule: Schedule = "constant"
    """How the learning rate moves over max_steps; ``exponential`` ends at a hundredth of it."""

    buffer_init_steps: Count = 0
    """Agent steps recorded before the first update; at least a batch."""

    steps_per_update: Positive = 1.0
    """Agent steps for each gradient step."""

    reward_signal_steps_per_update: Positive = Field(default_factory=_as_steps_per_update)
    """Agent steps for each update of the reward signals; as steps_per_update where not given."""

    save_replay_buffer: Flag = False
    """Whether the replay buffer is saved and resumed with the run."""

    replay: ReplaySettings = ReplaySettings()
    """How minibatches are drawn. Not in ML-Agents."""

    tau: UnitInterval = 0.005
    """Share of the networks that moves into their targets at each update."""

    @property
    def relabels_goals(self) -> bool:
        return self.replay.type == "hindsight"

    @property
    def demonstrated_rows(self) -> int:
        """Demonstrated rows of a minibatch, if there are demonstrations: at least one, and never all."""
        return max(min(round(self.batch_size * self.replay.demo_share), self.batch_size - 1), 1)

    @property
    def learning_starts(self) -> int:
        """Agent steps recorded before the first update."""
        # A batch of a group's learner is of joint steps, and each of them took a step of every agent.
        return max(self.buffer_init_steps, self.batch_size * self.num_agents)

    @property
    def target_steps(self) -> int:
        """Rewards that a target adds up at most."""
        return 1

    @property
    def first_update(self) -> int:
        """Agent steps recorded before the first update is made."""
        return self.learning_starts + math.ceil(self.steps_per_update)

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        for remark in self.replay.remarks():
            yield Remark(("replay", *remark.location), remark.text)

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if network.memory is not None and network.memory.sequence_length > self.batch_size:
            location = ("network_settings", "memory", "sequence_length")
            most = f"at most the batch_size of {self.batch_size}"
            yield Contradiction(location, most, network.memory.sequence_length)
        if network.memory is not None and self.buffer_size < network.memory.sequence_length:
            longest = network.memory.sequence_length
            sequence = f"at least the {longest} steps of a sequence (memory.sequence_length)"
            yield Contradiction(("hyperparameters", "buffer_size"), sequence, self.buffer_size)
        if self.replay.demo_path is not None and network.memory is not None:
            without = "nothing, as recordings (replay.demo_path) hold no memories of a policy"
            yield Contradiction(("network_settings", "memory"), without, "a memory")
        if self.replay.demo_path is not None and self.batch_size < 2:
            both = "at least 2, an own and a demonstrated step (replay.demo_path)"
            yield Contradiction(("hyperparameters", "batch_size"), both, self.batch_size)
        reason = f"as replay of type {self.replay.type} draws single transitions"
        if self.replay.draws_single_transitions and network.memory is not None:
            yield Contradiction(("network_settings", "memory"), f"nothing, {reason}", "a memory")
        if self.replay.draws_single_transitions and self.target_steps > 1:
            yield Contradiction(("hyperparameters", "n_step"), f"1, {reason}", self.target_steps)


CriticNorm = Literal["none", "batch"]
"""Normalization of a critic's layers."""


class SACSettings(ReplayHyperparameters):
    """Soft actor-critic (Haarnoja et al. 2018)."""

    supports_layer_norm: ClassVar[bool] = False

    tau: UnitInterval = 0.005
    """Share of the critics that moves into their targets at each update."""

    init_entcoef: NonNegative = 1.0
    """Entropy coefficient at the start; it is tuned from there. 0 means the smallest float, which stays near 0."""

    critic_norm: ShapesWeights[CriticNorm] = "none"
    """``batch`` normalizes the inputs of the critics' layers over the minibatch, with present and next steps together,
    and trains the critics without targets, with a β₁ of 0.5 in Adam: ``tau`` has no effect (CrossQ, Bhatt et al. 2024).
    Not in ML-Agents."""

    policy_delay: PositiveCount = 1
    """Gradient steps of the critics for each of the policy and of the entropy coefficient; the targets move with each.
    Not in ML-Agents."""

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.critic_norm == "batch" and self.differs("tau"):
            yield Remark(("tau",), "has no effect with critic_norm: batch, which needs no targets")

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.critic_norm == "batch" and network.memory is not None:
            plain = "none with a memory, as the steps of a sequence are too alike for a minibatch's moments"
            yield Contradiction(("hyperparameters", "critic_norm"), plain, self.critic_norm)


class CrossQSettings(SACSettings):
    """CrossQ (Bhatt et al. 2024): sac with batch normalization in the place of targets."""

    supports_memory: ClassVar[bool] = False

    batch_size: PositiveCount = 256
    """Rows of one gradient step, drawn from the replay buffer."""

    learning_rate: Positive = 1e-3
    """Step size of Adam at the start."""

    critic_norm: ShapesWeights[CriticNorm] = "batch"
    """As of sac."""

    policy_delay: PositiveCount = 3
    """As of sac."""


class OffPolicyHyperparameters(ReplayHyperparameters):
    """Hyperparameters of all learners from a replay buffer but sac and crossq."""

    one_value: ClassVar[bool] = True
    draws_actions: ClassVar[bool] = False

    learning_rate: Positive = 1e-3
    """Step size of Adam at the start."""

    max_grad_norm: Positive | None = 10.0
    """Gradients longer than this are scaled down to it; null never does."""

    n_step: PositiveCount = 1
    """Rewards that a target adds up before the target network's estimate; fewer where the episode, or a segment of
    it (of four times n_step, at most time_horizon), ends before."""

    tau: UnitInterval = 0.01
    """Share of the network that moves into its target at each update."""

    target_update: PositiveCount | None = None
    """Updates after which the target becomes a copy of the network; tau is not used then. Null: tau."""

    @property
    def target_steps(self) -> int:
        return self.n_step

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.target_update is not None and self.differs("tau"):
            yield Remark(("tau",), "has no effect with target_update, which copies whole networks")


class ActionValueSettings(Section):
    """Hyperparameters of all learners of action values: what targets are, and the share of random actions."""

    double: Flag = True
    """Whether the online network chooses the action that the target network values."""

    advantage_learning: UnitInterval = 0.0
    """Share of max Q − Q(action taken) that a target is lowered by, so that what is worth less stands out (α of
    Bellemare et al. 2016); 0.9 where many steps lie before a reward and agents stand still when they act greedily."""

    exploration_initial: UnitInterval = 1.0
    """Share of uniformly random actions at the start."""

    exploration_final: UnitInterval = 0.05
    """Share of uniformly random actions from the end of exploration_steps on."""

    exploration_steps: PositiveCount = 50000
    """Steps or episodes, as exploration_unit says, over which the share falls. For noise on continuous actions: agent
    steps over which it falls."""

    exploration_unit: Literal["steps", "episodes"] = "steps"
    """Unit of exploration_steps: agent steps, or finished episodes of agents."""


class NoiseSettings(Section):
    """Exploration noise on continuous actions."""

    exploration_noise: NonNegative = 0.1
    """Deviation of the noise at the start; actions lie between −1 and 1."""

    noise_final: NonNegative | None = None
    """Deviation of the noise from the end of exploration_steps on. Null: as at the start."""

    noise: Literal["gaussian", "ou"] = "gaussian"
    """``gaussian``: fresh at each step. ``ou``: an Ornstein-Uhlenbeck process, which drifts."""

    exploration_steps: PositiveCount = 50000
    """Agent steps over which the noise falls."""


class DQNSettings(ActionValueSettings, OffPolicyHyperparameters):
    """Deep Q-learning (Mnih et al. 2015), by default double (van Hasselt et al. 2016)."""

    learning_rate: Positive = 5e-4
    """Step size of Adam at the start."""

    dueling: ShapesWeights[Flag] = False
    """Whether a state's value and its actions' advantages have heads of their own (Wang et al. 2016)."""


class DDPGSettings(NoiseSettings, OffPolicyHyperparameters):
    """Deep deterministic policy gradient (Lillicrap et al. 2016). Continuous actions."""

    buffer_init_steps: Count = 1000
    """Agent steps recorded before the first update; at least a batch."""

    tau: UnitInterval = 0.005
    """Share of the networks that moves into their targets at each update."""

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.noise_final is None and self.differs("exploration_steps"):
            yield Remark(("exploration_steps",), "has no effect without noise_final")


class TD3Settings(DDPGSettings):
    """Twin delayed DDPG (Fujimoto et al. 2018). Continuous actions."""

    supports_layer_norm: ClassVar[bool] = False

    policy_delay: PositiveCount = 2
    """Gradient steps of the critics for each of the policy and of the targets."""

    target_noise: NonNegative = 0.2
    """Deviation of the noise on the target policy's actions, which lie between −1 and 1."""

    target_noise_clip: NonNegative = 0.5
    """Largest size of that noise."""

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.target_update is not None and self.target_update % self.policy_delay:
            multiple = f"a multiple of the policy_delay of {self.policy_delay}"
            yield Contradiction(("hyperparameters", "target_update"), multiple, self.target_update)


class GroupOffPolicySettings(GroupSettings, OffPolicyHyperparameters):
    """Hyperparameters of all learners of groups from a replay buffer."""

    default_share: ClassVar[Sharing] = "none"

    share: ShapesWeights[Sharing | None] = None
    """``full``: one network for all agents. ``group``: one for each behavior of a heterogeneous group. ``none``: one
    for each agent index in the group. Null: ``group`` in heterogeneous groups, else ``none``."""

    reward_mode: RewardMode = "individual"
    """``individual``: each agent learns from its own and its group's rewards. ``group_sum``, also
    called ``team_sum``: from everyone's."""

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.replay.draws_single_transitions:
            others = "uniform or prioritized, as other buffers are for agents that learn alone (ddpg, td3, sac, dqn)"
            yield Contradiction(("hyperparameters", "replay", "type"), others, self.replay.type)
        if self.replay.demo_path is not None:
            alone = "nothing, as recordings show one agent at a time, and this trainer type replays those of a group"
            yield Contradiction(("hyperparameters", "replay", "demo_path"), alone, self.replay.demo_path)


class GroupQSettings(ActionValueSettings, GroupOffPolicySettings):
    """Hyperparameters of all learners of a group's action values. Discrete actions."""


class IDQNSettings(GroupQSettings):
    """Independent deep Q-learning: each agent of a group for itself (Tampuu et al. 2017)."""


class VDNSettings(GroupQSettings):
    """Value decomposition networks: agents' values add up to the group's (Sunehag et al. 2018)."""

    reward_mode: SummedRewards = "team_sum"
    """The only mode: agents' values add up to the value of the group's rewards."""


class QMIXSettings(VDNSettings):
    """Value decomposition by a mixer: monotonic in agents' values, weighted by the state (Rashid et al. 2018)."""

    mixer_units: ShapesWeights[PositiveCount] = 32
    """Width of the network that mixes agents' values."""

    hypernet_units: ShapesWeights[PositiveCount] = 64
    """Width of the networks that generate the mixer's weights from the state."""

    state: ShapesWeights[Literal["joint", "environment"]] = "joint"
    """State of the mixer. ``joint``: all members' observations. ``environment``: the simulator's sensor
    ``global_state``."""

    @property
    def needs_global_state(self) -> bool:
        return self.state == "environment"


class CommunicatingSettings(GroupQSettings):
    """Hyperparameters of all learners with communication within a group."""

    communicates: ClassVar[bool] = True
    supports_cloning: ClassVar[bool] = False
    supports_layer_norm: ClassVar[bool] = False

    reward_mode: RewardMode = "team_sum"
    """``individual``: each agent learns from its own and its group's rewards. ``group_sum``, also
    called ``team_sum``: from everyone's."""

    @property
    def needs_agent_index(self) -> bool:
        return True


class ShareSettings(CommunicatingSettings):
    """Deep Q-learning of groups with shared features of observations."""

    thought_units: ShapesWeights[PositiveCount] = 32
    """Features that each agent shares."""

    share_iterations: Count = 4
    """How often shared features are averaged with the neighbour's before agents act on them."""

    mix: Literal["ring_simultaneous", "ring_sequential"] = "ring_simultaneous"
    """``ring_simultaneous``: all at once. ``ring_sequential``: one after the other; the last gets the first's twice."""


class ConsensusSettings(ShareSettings):
    """Deep Q-learning with shared features, and value heads that are averaged over the group at intervals."""

    consensus_every: PositiveCount = 100
    """Joint steps of groups after which value heads are averaged."""

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.optimizer != "adam":
            moments = "adam, whose moments are averaged with the value heads"
            yield Contradiction(("hyperparameters", "optimizer"), moments, self.optimizer)


class SICSettings(CommunicatingSettings):
    """Deep Q-learning of groups with messages between agents."""

    message_units: ShapesWeights[PositiveCount] = 32
    """Width of a message."""


class MADDPGSettings(NoiseSettings, GroupOffPolicySettings):
    """Multi-agent DDPG with central critics (Lowe et al. 2017). Continuous actions, discrete ones, or both."""

    gumbel_temperature: Positive = 1.0
    """Temperature of the softmax that replaces a discrete action while the policy learns."""

    hard_gumbel: Flag = False
    """Whether critics see one-hot actions then, with the gradient of soft ones."""

    logits_penalty: NonNegative = 1e-3
    """Weight of the squared outputs of the policy in its loss."""
