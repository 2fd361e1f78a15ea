"""The ``hyperparameters`` of trainer types that learn on policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainer_service.config.hyperparameters.common import (
    Contradiction,
    GroupSettings,
    Hyperparameters,
    LearningRateSchedule,
    RewardMode,
    Schedule,
    Sharing,
)
from trainer_service.config.network import NetworkSettings
from trainer_service.config.section import Remark
from trainer_service.config.values import (
    Flag,
    LogStd,
    NonNegative,
    Positive,
    PositiveCount,
    ShapesWeights,
    UnitInterval,
)

_ATTENTION_HEADS = 4


MIN_ADAPTED_RATE, MAX_ADAPTED_RATE = 1e-5, 1e-2
"""Limits of the learning rate with ``adaptive``, as in rsl_rl."""

_DESIRED_KL = 0.01


def _as_learning_rate_schedule(validated: dict[str, Any]) -> Schedule:
    schedule: LearningRateSchedule = validated["learning_rate_schedule"]
    return "constant" if schedule == "adaptive" else schedule


class OnPolicyHyperparameters(Hyperparameters):
    """Hyperparameters of all learners on policy."""

    learning_rate_schedule: LearningRateSchedule = "linear"
    """How the learning rate moves over max_steps; ``exponential`` ends at a hundredth of it. ``adaptive`` raises or
    lowers it after each epoch, so that the policy's KL divergence stays near desired_kl. Not in ML-Agents."""

    desired_kl: Positive | None = None
    """With ``adaptive``: KL divergence of the policy from the one before the update, in nats; null is 0.01. Above twice
    of it the learning rate is divided by 1.5, below half of it multiplied, within 1e-5 to 1e-2. Not in ML-Agents."""

    target_kl: Positive | None = None
    """Ends the policy's epochs of an update where its KL divergence from the policy before the update is above 1.5
    times this after an epoch; null never does. Not in ML-Agents."""

    max_grad_norm: Positive | None = 0.5
    """Gradients longer than this are scaled down to it; null never does. Not in ML-Agents."""

    beta: NonNegative = 5e-3
    """Weight of the entropy bonus at the start."""

    epsilon: Positive = 0.2
    """ε of the clipped surrogate at the start. Smaller is more cautious."""

    lambd: UnitInterval = 0.95
    """λ of generalized advantage estimation; 0 trusts the critic, 1 trusts the returns."""

    num_epoch: PositiveCount = 3
    """Passes over each rollout before it is dropped."""

    beta_schedule: Schedule = Field(default_factory=_as_learning_rate_schedule)
    """How beta moves over max_steps; as learning_rate_schedule where not given (``adaptive``: constant).
    ``exponential`` ends at a hundredth."""

    epsilon_schedule: Schedule = Field(default_factory=_as_learning_rate_schedule)
    """How epsilon moves over max_steps; as learning_rate_schedule where not given (``adaptive``: constant). All but
    ``constant`` end at 0.1."""

    log_std_init: LogStd | None = None
    """Natural logarithm of the first standard deviation of continuous actions, in the simulator's scale of −1 to 1;
    null is ML-Agents' −1.1, a third. Stable-Baselines3 has 0. Not in ML-Agents."""

    @property
    def initial_critic_learning_rate(self) -> float:
        """Step size of the critic's Adam at the start."""
        return self.learning_rate

    @property
    def adapted_kl(self) -> float | None:
        """KL divergence that the learning rate is adapted to; None where it follows a schedule."""
        return (self.desired_kl or _DESIRED_KL) if self.learning_rate_schedule == "adaptive" else None

    @property
    def measures_kl(self) -> bool:
        """Whether the policy's KL divergence decides about the learning rate or the number of epochs."""
        return self.adapted_kl is not None or self.target_kl is not None

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.adapted_kl is None and self.desired_kl is not None:
            only = "null, because only 'learning_rate_schedule: adaptive' follows it"
            yield Contradiction(("hyperparameters", "desired_kl"), only, self.desired_kl)
        if self.adapted_kl is not None and not MIN_ADAPTED_RATE <= self.learning_rate <= MAX_ADAPTED_RATE:
            limits = f"{MIN_ADAPTED_RATE:g} to {MAX_ADAPTED_RATE:g}, the limits of 'learning_rate_schedule: adaptive'"
            yield Contradiction(("hyperparameters", "learning_rate"), limits, self.learning_rate)

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.target_kl is not None and self.num_epoch == 1:
            yield Remark(("target_kl",), "has no effect: with 'num_epoch: 1' an update has no further epochs")


class PPOSettings(OnPolicyHyperparameters):
    """Proximal policy optimization (Schulman et al. 2017)."""

    needs_actions: ClassVar[bool] = False
    supports_stale_rollouts: ClassVar[bool] = True

    shared_critic: ShapesWeights[Flag] = False
    """Whether the value heads sit on the actor's body instead of a network of their own."""


class GroupOnPolicySettings(GroupSettings, OnPolicyHyperparameters):
    """Hyperparameters of all learners of groups on policy."""

    @property
    def estimates_every_epoch(self) -> bool:
        """Whether advantages are estimated again for each epoch."""
        return False


class CentralCriticSettings(GroupOnPolicySettings):
    """Hyperparameters of learners with a central critic, which may have a learning rate of its own."""

    max_grad_norm: Positive | None = 10.0
    """Gradients of actor and critic longer than this are scaled down to it, each by itself; null never does."""

    critic_learning_rate: Positive | None = None
    """Step size of the critic's Adam, on the schedule of learning_rate (``adaptive``: constant); null:
    learning_rate."""

    @property
    def initial_critic_learning_rate(self) -> float:
        return self.critic_learning_rate or self.learning_rate


class MAPPOSettings(CentralCriticSettings):
    """Multi-agent PPO with a central critic (Yu et al. 2022)."""

    supports_stale_rollouts: ClassVar[bool] = True

    reward_mode: RewardMode = "individual"
    """``individual``: each agent learns from its own and its group's rewards. ``group_sum``, also
    called ``team_sum``: from everyone's."""

    state: ShapesWeights[Literal["joint", "environment", "agent", "own_and_joint"]] = "joint"
    """Input of the critic. ``joint``: all members' observations. ``environment``: the simulator's sensor
    ``global_state``. ``agent``: for each member the joint observations, its own and its agent index.
    ``own_and_joint``: likewise, in two bodies: one sees its own observations, one everyone's from its place."""

    value_normalization: ShapesWeights[Literal["none", "valuenorm", "popart"]] = "valuenorm"
    """Whether the critic works in units of the returns' running scale."""

    value_loss: Literal["mse", "huber"] = "huber"
    """Loss of the critic."""

    huber_delta: Positive = 10.0
    """With ``huber``: errors beyond this count linearly, in the critic's units."""

    clip_value: Flag = True
    """Whether values are clipped to within epsilon of those before the update, in the critic's units."""

    advantage_normalization: Literal["none", "global", "per_agent"] = "global"
    """Whether advantages get zero mean and unit deviation: over all agents, or for each of them."""

    advantage_estimates: Literal["once", "every_epoch"] = "once"
    """``once``: all epochs of the actors use the critic as it was before the update, as MAPPO's authors do.
    ``every_epoch``: actors and critic take turns, and each epoch uses the critic of the last one, as ppo does."""

    @property
    def estimates_every_epoch(self) -> bool:
        return self.advantage_estimates == "every_epoch"

    @property
    def needs_global_state(self) -> bool:
        return self.state == "environment"


class HAPPOSettings(MAPPOSettings):
    """Heterogeneous-agent PPO: agents learn one after the other (Kuba et al. 2022)."""

    default_share: ClassVar[Sharing] = "none"
    default_team_share: ClassVar[Sharing] = "none"

    share: ShapesWeights[Sharing | None] = None
    """``none``: one actor for each agent index in the group, as the method requires, and as null means here."""

    fixed_order: Flag = False
    """Whether agents always learn in the order of their indices; a weaker method."""

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.estimates_every_epoch:
            why = "'once', as each agent learns from what those before it have become"
            yield Contradiction(("hyperparameters", "advantage_estimates"), why, "'every_epoch'")

    def remarks(self) -> Iterator[Remark]:
        yield from super().remarks()
        if self.share in ("full", "group"):
            yield Remark(
                ("share",),
                f"{self.share}: agents that share an actor change each other's policy before their turn, so what happo "
                "guarantees does not hold; write 'share: none', or use mappo",
            )


class POCASettings(GroupOnPolicySettings):
    """Posthumous credit assignment for groups of agents (Cohen et al. 2021)."""

    supports_stale_rollouts: ClassVar[bool] = True

    @property
    def max_group_size(self) -> int | None:
        """None where one actor serves all: the critic attends to any number of agents."""
        return self.num_agents if self.needs_agent_index else None

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if network.hidden_units % _ATTENTION_HEADS:
            multiple = f"a multiple of {_ATTENTION_HEADS}, which poca's attention heads share"
            yield Contradiction(("network_settings", "hidden_units"), multiple, network.hidden_units)


class COMASettings(CentralCriticSettings):
    """Counterfactual multi-agent policy gradients (Foerster et al. 2018). Discrete actions of one branch."""

    unused: ClassVar[Mapping[str, str]] = {
        "epsilon": "coma clips by ratio_clip",
        "epsilon_schedule": "coma clips by ratio_clip, which does not change over the run",
        "log_std_init": "coma is for discrete actions",
    }

    beta: NonNegative = 0.0
    """Weight of the entropy bonus at the start."""

    lambd: UnitInterval = 0.8
    """λ of the returns that the critic learns."""

    action_value: Literal["critic", "return"] = "critic"
    """The value of an action, compared with the agent's other choices. ``critic``: the critic's value of it, as
    COMA's authors do. ``return``: its λ-return, so that errors of the critic mislead the actors less."""

    advantage_normalization: Literal["none", "global"] = "none"
    """Whether advantages get zero mean and unit deviation over all agents, so that ``beta`` weighs the same whatever
    rewards are."""

    num_epoch: PositiveCount = 1
    """Passes over each rollout. More than one needs ratio_clip."""

    value_normalization: ShapesWeights[Literal["none", "valuenorm", "popart"]] = "none"
    """Whether the critic works in units of the returns' running scale."""

    ratio_clip: Positive | None = None
    """Clips the probability ratio as PPO does, so that a rollout may serve more than once; null: plain gradient."""

    agent_ids: ShapesWeights[Flag] = True
    """With one actor for all: whether it sees the agent's index in its group."""

    exploration_initial: UnitInterval = 0.5
    """Share of uniformly random actions at the start."""

    exploration_final: UnitInterval = 0.01
    """Share of uniformly random actions from the end of exploration_steps on."""

    exploration_steps: PositiveCount = 100000
    """Agent steps over which the share falls."""

    target_update: PositiveCount = 200
    """Gradient steps of the critic after which its target becomes a copy of it."""

    state: ShapesWeights[Literal["joint", "environment"]] = "joint"
    """Input of the critic beside actions. ``joint``: all members' observations. ``environment``: the simulator's sensor
    ``global_state``."""

    @property
    def needs_global_state(self) -> bool:
        return self.state == "environment"

    def contradictions(self, network: NetworkSettings) -> Iterator[Contradiction]:
        yield from super().contradictions(network)
        if self.num_epoch > 1 and self.ratio_clip is None:
            once = "1, because coma learns from a rollout once unless there is a ratio_clip"
            yield Contradiction(("hyperparameters", "num_epoch"), once, self.num_epoch)
