"""Control of an update by the KL divergence of the policy from the policy before the update.

The divergence has a closed form for all action distributions here. It is computed after each epoch, over the whole
rollout, in one forward pass without gradients. So it does not depend on the computation of gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer_service.config.hyperparameters.on_policy import (
    MAX_ADAPTED_RATE,
    MIN_ADAPTED_RATE,
    OnPolicyHyperparameters,
)
from trainer_service.learning.algorithms.common.on_policy.rollout import (
    MinibatchSampler,
    OnPolicyActor,
    Rollout,
    parts_in_order,
)
from trainer_service.learning.networks.encoders.layers import rows_at_once
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.policies.action_heads import ActionParameters

_FACTOR = 1.5
_TOLERANCE = 1.5


class _Epochs(NamedTuple):
    """Epochs of one policy on the same steps, and the final divergence."""

    number: int = 0
    divergence: float = 0.0
    ended: bool = False


class KLControl:
    """Adapts the learning rate, and ends the epochs of an update, by the policy's KL divergence.

    The rule of the learning rate is rsl_rl's (Rudin et al. 2022, arXiv:2109.11978), the rule of epochs is
    Stable-Baselines3's. Both are applied after each epoch instead of each minibatch.
    """

    def __init__(self, hyper: OnPolicyHyperparameters, policy: OnPolicyActor) -> None:
        self._hyper = hyper
        self._policy = policy
        self._adapted = hyper.learning_rate
        self.sampler: MinibatchSampler | None = None
        """Samples the policy's minibatches; None between updates."""
        self._rollout: Rollout
        self._steps: Tensor | None
        self._old: list[ActionParameters]
        self._epochs: list[_Epochs] = []

    def begin(self, rollout: Rollout, sampler: MinibatchSampler, steps: Tensor | None = None) -> None:
        """Stores the policy's action distributions before its epochs on some steps of a rollout.

        sampler: of these steps. steps: their numbers in the rollout, int64; None for all.
        """
        self._rollout, self.sampler, self._steps = rollout, sampler, steps
        # log σ is a parameter, whose values change in place.
        self._old = [
            each._replace(log_sigma=each.log_sigma.clone()) for each, _ in self._distributions(sampler)
        ]
        self._epochs.append(_Epochs())

    def learning_rate(self, scheduled: float) -> float:
        """The adapted learning rate, or the scheduled one."""
        return scheduled if self._hyper.adapted_kl is None else self._adapted

    @property
    def ended(self) -> bool:
        """Whether the divergence ended the policy's epochs."""
        return self._epochs[-1].ended

    def end_epoch(self) -> None:
        """Measures the divergence after an epoch, and applies the rules. All learner ranks get the same result."""
        divergence, target, desired = self._divergence(), self._hyper.target_kl, self._hyper.adapted_kl
        ended = target is not None and divergence > _TOLERANCE * target
        self._epochs[-1] = _Epochs(self._epochs[-1].number + 1, divergence, ended)
        if desired is not None and divergence > 2.0 * desired:
            self._adapted = max(self._adapted / _FACTOR, MIN_ADAPTED_RATE)
        elif desired is not None and 0.0 < divergence < 0.5 * desired:
            self._adapted = min(self._adapted * _FACTOR, MAX_ADAPTED_RATE)

    def finish(self, scheduled: float) -> dict[str, float]:
        """Ends an update. Returns its metrics by tag, averaged if several policies learned in turn.

        The divergence is measured after the last epoch. An adapted learning rate is for the next update.
        """
        epochs, self._epochs, self._old, self.sampler = self._epochs, [], [], None
        return {
            "Policy/Learning Rate": self.learning_rate(scheduled),
            "Policy/Exact KL Divergence": sum(each.divergence for each in epochs) / len(epochs),
            "Policy/Epochs": sum(each.number for each in epochs) / len(epochs),
        }

    def state_dict(self) -> dict[str, float]:
        """The adapted learning rate."""
        return {"learning_rate": self._adapted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the adapted learning rate."""
        self._adapted = float(state["learning_rate"])

    def _divergence(self) -> float:
        """Mean KL(π_old ‖ π) over the steps."""
        assert self.sampler is not None, "begin comes first"
        shard = self.sampler.shard
        with torch.no_grad():
            divergences = [
                self._policy.actions.kl_divergence(old, new, allowed)
                for old, (new, allowed) in zip(self._old, self._distributions(self.sampler), strict=True)
            ]
        # Every rank computes all steps. The mean over ranks is equal on all ranks, despite their rounding.
        return float(shard.add_up(torch.cat(divergences).mean() / shard.world))

    def _distributions(self, sampler: MinibatchSampler) -> Iterator[tuple[ActionParameters, Tensor]]:
        """Yields action distributions of the present policy, with action masks, in chunks of the steps."""
        rollout, rows = self._rollout, rows_at_once(self._policy)
        for part, sequences in parts_in_order(sampler.steps, sampler.sequences, rows):
            steps = part if self._steps is None else self._steps[part]
            yield self._parameters(steps, sequences), rollout.allowed_actions[steps]

    @torch.no_grad()
    def _parameters(self, steps: slice | Tensor, sequences: Sequences | None) -> ActionParameters:
        return self._policy.policy([sensor[steps] for sensor in self._rollout.observations], sequences)
