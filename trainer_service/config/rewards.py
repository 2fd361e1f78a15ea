"""Where rewards come from: the ``reward_signals`` of a behavior."""

from __future__ import annotations

from trainer_service.config.network import NetworkSettings
from trainer_service.config.section import Section
from trainer_service.config.values import (
    Flag,
    Number,
    Positive,
    ShapesWeights,
    Text,
    UnitInterval,
)


class RewardSignalSettings(Section):
    """What every reward signal has."""

    gamma: UnitInterval = 0.99
    """Discount per decision step."""

    strength: Number = 1.0
    """What the signal's rewards are multiplied by."""

    network_settings: NetworkSettings = NetworkSettings()
    """The signal's own network, where it has one."""


class ExtrinsicSettings(RewardSignalSettings):
    """The task's own rewards. Has no network."""


class IntrinsicSettings(RewardSignalSettings):
    """A reward of the learner's own making."""

    learning_rate: Positive
    """Step size of the signal's own Adam."""

    normalize_rewards: Flag = False
    """Whether rewards are divided by the running size of their returns, so that strength alone says how they weigh."""


class CuriositySettings(IntrinsicSettings):
    """Reward for what the agent could not predict (Pathak et al. 2017)."""

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
"""The reward signals, and how each is set up."""
