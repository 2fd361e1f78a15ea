"""What one update of PPO learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.on_policy.minibatches import MinibatchSampler
from trainer_service.rollout.trajectories import Trajectories


class PPORollout(NamedTuple):
    """The rollout that one update learns from: S steps of P trajectories."""

    trajectories: Trajectories

    rewards: Sequence[NDArray[np.float32]]
    """Rewards of each source, its strength included. Shapes [S]."""

    observations: Sequence[Tensor]
    """Normalized, one per sensor. Shapes [S, …]."""

    final: Sequence[Tensor]
    """Normalized observations after the last steps. Shapes [P, …]."""

    continuous_actions: Tensor
    discrete_actions: Tensor
    allowed_actions: Tensor
    old_log_prob: Tensor

    sampler: MinibatchSampler

    weights: Tensor | None = None
    """Importance weights of the steps, [S], where an older policy may have acted."""
