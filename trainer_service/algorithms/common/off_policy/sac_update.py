"""The gradient steps of soft actor-critic, with its networks, targets and optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.off_policy.sac_minibatch import SACMinibatch
from trainer_service.config import SACSettings, TrainerSettings
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.policies.deterministic_actor import RememberingActor
from trainer_service.networks.policies.soft_actor import SoftActor, SoftCritics
from trainer_service.networks.shard import ALONE, Part, Shard
from trainer_service.ops import soft_actor_critic as soft
from unity_bridge.specs import BehaviorSpec


class StepResult(NamedTuple):
    """Losses and statistics of one gradient step: B rows, S reward signals."""

    losses: Tensor
    """Loss of each critic. [critics]"""

    policy_loss: Tensor

    entropy: Tensor
    """Entropy of all parts together, the mean over rows."""

    alpha: Tensor
    """Temperatures before the step. [parts]"""

    values: Tensor
    """Soft values, the mean over rows. [S]"""

    rewards: Tensor
    """Mean rewards. [S]"""

    errors: Tensor
    """Critics' errors, in absolute terms and on average over critics and signals. [B]"""

    def report(self) -> Tensor:
        """All statistics but those of single rows, end to end, so that they leave the device at once."""
        return torch.cat(
            [
                self.losses,
                self.policy_loss.view(1),
                self.entropy.view(1),
                self.alpha,
                self.values,
                self.rewards,
            ]
        )


class SACUpdate:
    """A policy, its critics and their targets, and a temperature for each kind of action."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: TrainerSettings,
        hyper: SACSettings,
        discounts: Tensor,
        shard: Shard = ALONE,
    ) -> None:
        """discounts: of each reward signal, on the device where all is computed. [S]

        Raises ValueError where the behavior has sensors or actions that the networks cannot take.
        """
        device, network = discounts.device, settings.network_settings
        self._hyper = hyper
        self._discounts = discounts
        self._shard = shard
        self._branches = spec.action_spec.discrete_branches
        self._continuous_size = spec.action_spec.continuous_size
        heads = len(discounts)
        self.actor = SoftActor(spec, network).to(device)
        self._critics = SoftCritics(spec, network, value_heads=heads).to(device)
        self._target_critics = TargetNetwork(self._critics)
        self.acting = RememberingActor(self.actor, self._critics) if self._critics.memory_size else self.actor
        """Decides, and keeps the critics' memories where they have any."""
        parts = len(self._branches) + (self._continuous_size > 0)
        self._log_alpha = nn.Parameter(torch.full((parts,), hyper.init_entcoef, device=device).log())
        decay = hyper.weight_decay
        self.actor_optimizer = FlatOptimizer(self.actor.parameters(), weight_decay=decay, shard=shard)
        self._critic_optimizer = FlatOptimizer(self._critics.parameters(), weight_decay=decay, shard=shard)
        self._alpha_optimizer = FlatOptimizer([self._log_alpha], shard=shard)

    def gradient_step(
        self, batch: SACMinibatch, part: Part, rate: float, generator: torch.Generator
    ) -> StepResult:
        """One gradient step of everything. part: of the minibatch; generator: what actions are drawn with."""
        alpha = self._log_alpha.detach().exp()
        losses, errors = self._update_critics(batch, part, alpha, rate, generator)
        policy_loss, entropy, value = self._update_actor(batch, part, alpha, rate, generator)
        with torch.no_grad():
            target = soft.target_entropies(self._continuous_size, batch.allowed, self._branches)
            gradient = soft.temperature_gradient(entropy, target)
            self._alpha_optimizer.apply_gradient(gradient, rate, part.share)
            self._target_critics.soft_update(self._critic_optimizer.parameters, self._hyper.tau)
            return StepResult(
                losses=losses,
                policy_loss=policy_loss,
                entropy=entropy.sum(dim=1).mean(),
                alpha=alpha,
                values=value.mean(dim=0),
                rewards=batch.rewards.mean(dim=0),
                errors=errors.abs().mean(dim=(0, 2)),
            )

    def _update_critics(
        self, batch: SACMinibatch, part: Part, alpha: Tensor, rate: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Moves the critics towards the soft targets. Returns each critic's loss [N], and the errors [N, B, S]."""
        noise = partial(self._shard.normal, part=part, generator=generator)
        with torch.no_grad():
            parameters = self.actor.policy_from(batch.next_inputs)
            drawn = self.actor.actions.draw(parameters, batch.next_allowed_or_none, noise)
            target = self._target_critics.network
            q = target.values(target.encode(batch.next_inputs), drawn.continuous)
            values = soft.soft_values(q, drawn, alpha, self._branches)
            targets = soft.soft_targets(batch.rewards, batch.continues, values, self._discounts)
        q = self._critics.values(self._critics.encode(batch.inputs), batch.continuous_actions)
        errors = soft.taken_values(q, batch.discrete_actions) - targets
        losses = soft.critic_loss(errors, batch.weights)
        self._critic_optimizer.minimize(losses.sum(), rate, self._hyper.max_grad_norm, part.share)
        return losses.detach(), errors.detach()

    def _update_actor(
        self, batch: SACMinibatch, part: Part, alpha: Tensor, rate: float, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Moves the policy towards larger soft values. Returns loss, entropies [B, parts] and values [B, S]."""
        noise = partial(self._shard.normal, part=part, generator=generator)
        parameters = self.actor.policy_from(batch.inputs)
        drawn = self.actor.actions.draw(parameters, batch.allowed_or_none, noise)
        with torch.no_grad():
            features = self._critics.encode(batch.inputs)
        q = self._critics.values(features, drawn.continuous)
        values = soft.soft_values(q, drawn, alpha, self._branches)
        loss = -values.sum(dim=1).mean()
        self.actor_optimizer.minimize(loss, rate, self._hyper.max_grad_norm, part.share)
        with torch.no_grad():
            return loss.detach(), soft.entropies(drawn, self._branches), values.detach()

    def metrics(self, report: list[float], signals: list[str]) -> dict[str, float]:
        """Metrics by tag. report: mean of some steps' reports; signals: names of the reward signals."""
        branches, parts = len(self._branches), len(self._log_alpha)
        first, second, policy_loss, entropy = report[:4]
        alpha, values = report[4 : 4 + parts], report[4 + parts : 4 + parts + len(signals)]
        metrics = {
            "Losses/Policy Loss": policy_loss,
            "Losses/Value Loss": (first + second) / 2.0,
            "Losses/Q1 Loss": first,
            "Losses/Q2 Loss": second,
            "Policy/Entropy": entropy,
        }
        if branches:
            metrics["Policy/Discrete Entropy Coeff"] = sum(alpha[:branches]) / branches
        if self._continuous_size:
            metrics["Policy/Continuous Entropy Coeff"] = alpha[-1]
        for name, value, reward in zip(signals, values, report[-len(signals) :], strict=True):
            metrics[f"Policy/{name.capitalize()} Value"] = value
            metrics[f"Policy/{name.capitalize()} Reward"] = reward
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Networks, temperatures and the optimizers' moments."""
        return {
            "actor": self.actor.state_dict(),
            "critics": self._critics.state_dict(),
            "target_critics": self._target_critics.network.state_dict(),
            "log_alpha": self._log_alpha.detach(),
            "actor_optimizer": self.actor_optimizer.adam.state_dict(),
            "critic_optimizer": self._critic_optimizer.adam.state_dict(),
            "alpha_optimizer": self._alpha_optimizer.adam.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there: for the same reward signals."""
        same = list(range(len(self._discounts)))
        self.load_weights(state, same, len(same))
        self.actor_optimizer.adam.load_state_dict(state["actor_optimizer"])
        self._critic_optimizer.adam.load_state_dict(state["critic_optimizer"])
        self._alpha_optimizer.adam.load_state_dict(state["alpha_optimizer"])

    def load_weights(self, state: Mapping[str, Any], heads: Sequence[int | None], known: int) -> None:
        """Takes networks and temperatures, without the optimizers' moments.

        heads: for each of our value heads which of the state's it continues, None where it begins anew.
        known: value heads of the state.
        """
        self.actor.load_state_dict(state["actor"])
        for critics, theirs in (
            (self._critics, state["critics"]),
            (self._target_critics.network, state["target_critics"]),
        ):
            critics.load_state_dict({**theirs, **critics.heads_from(theirs, heads, known)})
        with torch.no_grad():
            self._log_alpha.copy_(state["log_alpha"])
