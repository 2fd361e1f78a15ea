"""The ``reward_signals`` of a behavior: the sources of its rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer_service.config.network import NetworkSettings
from trainer_service.config.section import Remark, Section
from trainer_service.config.values import (
    Flag,
    Number,
    Positive,
    ShapesWeights,
    Text,
    UnitInterval,
)
from trainer_service.plugins import RewardSignalPlugin, settings_class
from unity_bridge.plugins import PluginGroup


class RewardSignalSettings(Section):
    """Settings of all reward signals."""

    gamma: UnitInterval = 0.99
    """Discount per decision step. Equal for all signals of learners from a replay buffer other than sac and crossq."""

    strength: Number = 1.0
    """Factor of the signal's rewards."""

    network_settings: NetworkSettings = NetworkSettings()
    """The signal's own network, where it has one."""

    def remarks(self) -> Iterator[Remark]:
        """Yields settings that are accepted but have no effect or another one."""
        yield from (remark.below("network_settings") for remark in self.network_settings.remarks())
        if self.network_settings.deterministic:
            text = "has no effect: no actions are drawn from a signal's network"
            yield Remark(("network_settings", "deterministic"), text)


class ExtrinsicSettings(RewardSignalSettings):
    """The task's own rewards, without a network."""

    def remarks(self) -> Iterator[Remark]:
        default = NetworkSettings()
        for key in NetworkSettings.model_fields:
            if getattr(self.network_settings, key) != getattr(default, key):
                yield Remark(("network_settings", key), "has no effect: the task's rewards need no network")

    normalize_rewards: Flag = False
    """Whether rewards are divided by the running scale of their discounted sums (Engstrom et al. 2020), on policy
    alone; the reported returns of episodes stay in task units. Not in ML-Agents."""


class IntrinsicSettings(RewardSignalSettings):
    """Settings of rewards that the learner computes itself."""

    learning_rate: Positive
    """Step size of the signal's own Adam."""

    normalize_rewards: Flag = False
    """Whether rewards are divided by the running scale of their discounted sums, so that strength alone sets their
    weight."""


class CuriositySettings(IntrinsicSettings):
    """Reward for transitions that the agent could not predict (Pathak et al. 2017)."""

    learning_rate: Positive = 3e-4
    """Step size of the signal's own Adam."""


class GAILSettings(RewardSignalSettings):
    """Reward for behaving like the demonstrations (Ho and Ermon 2016)."""

    demo_path: Text
    """A .demo file or a folder of them."""

    learning_rate: Positive = 3e-4
    """Step size of the signal's own Adam."""

    use_actions: ShapesWeights[Flag] = False
    """Whether the discriminator sees actions, and real ends of episodes, beside observations."""

    use_vail: ShapesWeights[Flag] = False
    """Whether the discriminator has a variational bottleneck (Peng et al. 2019)."""


class RNDSettings(IntrinsicSettings):
    """Reward for observations that are new (Burda et al. 2019)."""

    learning_rate: Positive = 1e-4
    """Step size of the signal's own Adam."""


REWARD_SIGNALS: dict[str, type[RewardSignalSettings]] = {
    "extrinsic": ExtrinsicSettings,
    "curiosity": CuriositySettings,
    "gail": GAILSettings,
    "rnd": RNDSettings,
}
"""The settings of each reward signal. One of a plugin comes in when a configuration names it."""

REWARD_SIGNAL_PLUGINS = PluginGroup(
    "reward signal", "trainer_service.reward_signals", frozenset(REWARD_SIGNALS)
)
"""Reward signals of other distributions; see ``RewardSignalPlugin``."""


def reward_signal_settings(name: str) -> type[RewardSignalSettings] | None:
    """The settings of a reward signal; None for one that is neither built-in nor a plugin's. Raises PluginError."""
    return settings_class(
        REWARD_SIGNALS, REWARD_SIGNAL_PLUGINS, name, RewardSignalPlugin, RewardSignalSettings
    )


def leading_signal(signals: Mapping[str, RewardSignalSettings]) -> str:
    """The signal whose gamma is that of a learner with one value for all: ``extrinsic``, or else the first."""
    return "extrinsic" if "extrinsic" in signals else next(iter(signals))
