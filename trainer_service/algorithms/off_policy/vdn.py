"""Value decomposition networks, Sunehag et al. 2018 (arXiv:1706.05296): agents' values add up to the group's.

The group learns from its rewards; each agent's part of them is what the others' parts do not explain. Each agent acts
alone: the best choices of all make the largest sum.
"""

from __future__ import annotations

from torch import nn

from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.config.hyperparameters.off_policy import VDNSettings
from trainer_service.networks.groups.mixers import SumMixer


class VDN(GroupQLearner):
    """A learner of values that add up to the group's."""

    _settings_type = VDNSettings
    _hyper: VDNSettings

    def _make_mixer(self) -> nn.Module:
        return SumMixer()
