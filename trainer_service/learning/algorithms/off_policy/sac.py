"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), with ML-Agents' settings.

In the order of the paper's algorithm 1: act, store steps, and for every few steps make one gradient step of the
critics, the policy, the temperatures and the critics' targets. For continuous, discrete and hybrid actions. B rows, S
reward signals. The parts of an action are its branches, then all continuous actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainer_service.config import NetworkSettings, SACSettings, TrainerSettings
from trainer_service.learning.algorithms.common import reward_models
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.cloning import action_loss, make_cloning
from trainer_service.learning.algorithms.common.learner import Compute, Metrics, learner_arguments
from trainer_service.learning.algorithms.common.off_policy.replay_learner import (
    ReplayLearner,
    ReplayUpdate,
    bounded_actor,
)
from trainer_service.learning.algorithms.common.off_policy.transition_minibatch import (
    TransitionMinibatch,
    transition_parts,
)
from trainer_service.learning.algorithms.common.policy_network import SquashedPolicyNetwork
from trainer_service.learning.kernels.choice import KernelChoice, sac_kernel_for
from trainer_service.learning.kernels.compiled.sac import CompiledSAC, SoftBatch
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import BETAS, FlatOptimizer, TargetNetwork
from trainer_service.learning.networks.optimizers import make_optimizer
from trainer_service.learning.networks.policies.deterministic_actor import RememberingActor
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.policies.soft_actor import SoftActor, SoftCritics
from trainer_service.learning.networks.random_streams import random_stream, seeded
from trainer_service.learning.rewards import RewardSource
from trainer_service.ops import soft_actor_critic as soft
from unity_bridge.specs import BehaviorSpec

_MEANS = (
    "Losses/Critic {} Loss",
    "Losses/Policy Loss",
    "Policy/Entropy",
    "Policy/Entropy Coeff {}",
    "Policy/Signal {} Value",
)
"""Tags of a gradient step's means, in the order of the compiled kernel."""

_COMPILED = ("_step", "_next_actions", "_values", "_improve_policy", "targets")
"""Methods that the compiled kernel replaces. A subclass with its own has no kernel."""

_BETAS_WITHOUT_TARGETS = 0.5, 0.999
"""β₁ and β₂ of Adam without targets, as in CrossQ. With a β₁ of 0.9 Pendulum is not solved in 10,000 gradient steps."""


class SAC(ReplayLearner[TransitionMinibatch]):
    """A learner of a stochastic policy with soft critics, temperatures and a replay buffer."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: TrainerSettings | SACSettings,
        network: NetworkSettings | Compute | None = None,
        compute: Compute | None = None,
    ) -> None:
        """Arguments as in ``learner_arguments``. Raises ValueError if the sensors or actions are not supported."""
        settings, compute = learner_arguments(spec, settings, network, compute)
        hyper = require_settings(settings, SACSettings)
        device, network_settings = compute.device, settings.network_settings
        self._hyper = hyper
        self._branches = spec.action_spec.discrete_branches
        self._continuous_size = spec.action_spec.continuous_size
        sources = self._build(spec, settings, compute)
        policy, critics = self._policy, self._critics
        normalizer = ObservationNormalizer(spec.observation_specs, normalize=network_settings.normalize)
        acting = RememberingActor(policy, critics) if critics.memory_size else policy
        normalizer.to(device)
        imitator, loss = Imitator.of_trunk(policy.actor, policy.actions.forward), action_loss(policy.actions)
        parameters = self._policy_optimizer.parameters
        self._drawing = random_stream(compute.seed + 2)
        optimizers = [self._policy_optimizer, self._critic_optimizer, self._alpha_optimizer]
        has_own = any(getattr(type(self), name) is not getattr(SAC, name) for name in _COMPILED)
        targets = None if self._target_critics is None else self._target_critics.parameters.vector
        signals = self._discounts, self._ends_count
        make_kernel = partial(
            sac_kernel_for, policy, critics, spec.action_spec, optimizers, targets, *signals, hyper.tau
        )
        self._kernel: KernelChoice[CompiledSAC] = KernelChoice(
            (lambda: None) if has_own else make_kernel, compute.behavior
        )
        super().__init__(
            settings,
            compute,
            actor=bounded_actor(acting, normalizer, compute, SquashedPolicyNetwork, exported=policy),
            parts=transition_parts(
                spec,
                settings,
                compute,
                sources,
                normalizer,
                acting.memory_size,
                value_heads=True,
            ),
            cloning=make_cloning(
                spec, settings, compute, policy, lambda: [imitator], loss, parameters, normalizer.forward
            ),
            networks={"actor": policy, **self._values_by_key},
            optimizers={
                "actor_optimizer": self._policy_optimizer,
                "critic_optimizer": self._critic_optimizer,
                "alpha_optimizer": self._alpha_optimizer,
            },
            streams={"learning": self._drawing},
        )

    def _build(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> list[RewardSource]:
        """Makes reward sources, then networks with a value for each, targets and optimizers. Returns the sources."""
        device, shard, hyper = compute.device, compute.shard, self._hyper
        with seeded(compute.seed):
            sources = reward_models.make_reward_sources(spec, settings, device, shard)
            heads = len(sources)
            self._policy = SoftActor(spec, settings.network_settings).to(device)
            self._critics = SoftCritics(
                spec, settings.network_settings, value_heads=heads, norm=hyper.critic_norm
            ).to(device)
        self._discounts = torch.tensor([source.gamma for source in sources], device=device)
        self._ends_count = torch.tensor([float(not source.ignores_end) for source in sources], device=device)
        """1 for signals whose value is 0 after the end of an episode, 0 for signals that ignore the end. [S]"""
        normalized = hyper.critic_norm == "batch"
        self._target_critics = None if normalized else TargetNetwork(self._critics)
        """None with batch normalization, which needs no targets."""
        if normalized and shard.world > 1:
            raise ValueError(
                "hyperparameters.critic_norm: batch normalizes whole minibatches; expected distributed.num_learners 1, "
                f"got {shard.world}"
            )
        parts = len(self._branches) + (self._continuous_size > 0)
        start = max(hyper.init_entcoef, torch.finfo(torch.float32).tiny)
        self._log_alpha = nn.Parameter(torch.full((parts,), start, device=device).log())
        betas = _BETAS_WITHOUT_TARGETS if normalized else BETAS
        self._policy_optimizer = make_optimizer(self._policy.parameters(), hyper, shard, betas=betas)
        self._critic_optimizer = make_optimizer(self._critics.parameters(), hyper, shard, betas=betas)
        self._alpha_optimizer = FlatOptimizer([self._log_alpha], betas=betas, shard=shard)
        return sources

    @property
    def _values_by_key(self) -> dict[str, SoftCritics]:
        """The critics and their targets, if they have any, by their keys in checkpoints."""
        target = self._target_critics
        return {"critics": self._critics, **({} if target is None else {"target_critics": target.network})}

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due, of the critics, the policy, the temperatures and the targets."""
        updates = self.begin_update(step)
        kernel = self._kernel.chosen
        make_step = self._step if kernel is None else partial(self._compiled_step, kernel)
        for batch in updates.minibatches():
            # Gradient steps alone are counted here: replay.updates has those of the reward models, too.
            improves = (self.replay.schedule.updates + 1) % self._hyper.policy_delay == 0
            means, errors = make_step(batch, updates, improves)
            critics = {_MEANS[0]: means.pop(_MEANS[0])}
            updates.report({**critics, "Policy/Signal {} Reward": batch.rewards.mean(dim=0)})
            if improves:
                updates.report(means)
            updates.finish_step(errors)
            updates.clone()
        own = {**self._named(updates.means()), **self.replay.metrics()}
        return {**updates.metrics(own), **updates.learn_rewards()}

    def _step(
        self, batch: TransitionMinibatch, updates: ReplayUpdate[TransitionMinibatch], improves: bool
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Makes a gradient step of the critics and, if it ``improves`` them, of policy and temperatures.

        Returns means for the report, and the mean |δ| of each row, [B].
        """
        # The critics move towards the soft targets.
        drawn = self._next_actions(batch, updates)
        q, next_q = self._values(batch, drawn)
        targets = self.targets(batch, drawn, next_q)
        taken = batch.discrete_actions + self._policy.actions.offsets
        errors = soft.taken_values(q, taken) - targets
        losses = soft.critic_loss(errors, batch.weights)
        updates.minimize(self._critic_optimizer, losses.sum())
        means = [losses, *(self._improve_policy(batch, updates) if improves else ())]
        if self._target_critics is not None:
            self._target_critics.soft_update(self._critic_optimizer.parameters, self._hyper.tau)
        return dict(zip(_MEANS, means, strict=False)), errors.detach().abs().mean(dim=(0, 2))

    def _improve_policy(
        self, batch: TransitionMinibatch, updates: ReplayUpdate[TransitionMinibatch]
    ) -> tuple[Tensor, ...]:
        """Moves the policy towards larger soft values, and the temperatures towards the target entropies.

        Returns means for the report, those after the critics' losses.
        """
        alpha = self._log_alpha.detach().exp()
        parameters = self._policy.policy_from(batch.inputs)
        noise = partial(updates.normal, generator=self._drawing)
        drawn = self._policy.actions.draw(parameters, batch.allowed_or_none, noise)
        with self._critic_optimizer.held_still():
            q = self._critics.forward(batch.inputs, drawn.continuous)
        values = soft.soft_values(q, drawn, alpha, self._branches)
        policy_loss = -values.sum(dim=1).mean()
        updates.minimize(self._policy_optimizer, policy_loss)
        with torch.no_grad():
            entropy = soft.entropies(drawn, self._branches)
            wanted = soft.target_entropies(self._continuous_size, batch.allowed, self._branches)
            gradient = soft.temperature_gradient(entropy, wanted)
            self._alpha_optimizer.apply_gradient(gradient, updates.rate, updates.share)
        return policy_loss, entropy.sum(dim=1).mean(), alpha, values.mean(dim=0)

    def _compiled_step(
        self,
        kernel: CompiledSAC,
        batch: TransitionMinibatch,
        updates: ReplayUpdate[TransitionMinibatch],
        improves: bool,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The same as ``_step``, with the same noise."""
        next_noise, *noise = (
            updates.normal(batch.continuous_actions, self._drawing) for _ in range(1 + improves)
        )
        rows = SoftBatch(
            batch.inputs.observations, batch.next_inputs.observations, batch.continuous_actions,
            batch.discrete_actions + self._policy.actions.offsets, batch.allowed_or_none, batch.next_allowed_or_none,
            batch.rewards, batch.terminated, batch.weights, next_noise, noise[0] if improves else None,
        )  # fmt: skip
        means, errors = kernel.step(rows, updates.rate, updates.max_norm)
        sizes = [2, 1, 1, len(self._log_alpha), len(self._discounts)] if improves else [2]
        return dict(zip(_MEANS, torch.split(means, sizes), strict=False)), errors

    @torch.no_grad()
    def _next_actions(
        self, batch: TransitionMinibatch, updates: ReplayUpdate[TransitionMinibatch]
    ) -> soft.Drawn:
        """Draws the policy's actions after the steps of a minibatch."""
        noise = partial(updates.normal, generator=self._drawing)
        parameters = self._policy.policy_from(batch.next_inputs)
        return self._policy.actions.draw(parameters, batch.next_allowed_or_none, noise)

    def _values(self, batch: TransitionMinibatch, drawn: soft.Drawn) -> tuple[Tensor, Tensor]:
        """Values of a minibatch's steps by the critics, and of the next ones by their targets, if they have any."""
        now, following = (batch.inputs, batch.continuous_actions), (batch.next_inputs, drawn.continuous)
        if self._target_critics is None:
            return self._critics.joint_values(*now, *following)
        with torch.no_grad():
            next_q = self._target_critics.network.forward(*following)
        return self._critics.forward(*now), next_q

    @torch.no_grad()
    def targets(self, batch: TransitionMinibatch, drawn: soft.Drawn, next_q: Tensor) -> Tensor:
        """Targets r + γ V(o') of each signal. V is the soft value of the next actions that were drawn. [B, S]"""
        values = soft.soft_values(next_q, drawn, self._log_alpha.exp(), self._branches)
        continues = 1.0 - batch.terminated.unsqueeze(-1) * self._ends_count
        return soft.soft_targets(batch.rewards, continues, values, self._discounts)

    def _named(self, means: Metrics) -> Metrics:
        """Metrics by the tags of ML-Agents. means: reported by updates; empty without updates."""
        if not means:
            return {}
        first, second = (means[f"Losses/Critic {number} Loss"] for number in range(2))
        names = [name.capitalize() for name in reward_models.names(self.rewards.sources)]
        named = {
            "Losses/Value Loss": (first + second) / 2.0,
            "Losses/Q1 Loss": first,
            "Losses/Q2 Loss": second,
            **{f"Policy/{name} Reward": means[f"Policy/Signal {i} Reward"] for i, name in enumerate(names)},
        }
        if "Losses/Policy Loss" not in means:
            return named  # with policy_delay, no gradient step of this update was one of the policy
        branches = len(self._branches)
        alpha = [means[f"Policy/Entropy Coeff {part}"] for part in range(len(self._log_alpha))]
        named |= {key: means[key] for key in ("Losses/Policy Loss", "Policy/Entropy")}
        if branches:
            named["Policy/Discrete Entropy Coeff"] = sum(alpha[:branches]) / branches
        if self._continuous_size:
            named["Policy/Continuous Entropy Coeff"] = alpha[-1]
        return named | {
            f"Policy/{name} Value": means[f"Policy/Signal {i} Value"] for i, name in enumerate(names)
        }

    def state_dict(self) -> dict[str, Any]:
        """The whole state except the replay buffer, see ``replay_state``."""
        return {
            **super().state_dict(),
            "log_alpha": self._log_alpha.detach(),
            "gradients": self._kernel.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As for every learner with a replay buffer. The next update warns if it computes gradients otherwise."""
        super().load_state_dict(state)
        self._kernel.load(state.get("gradients", ""))  # older checkpoints have no entry

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads reward signals by name. A signal that is not in the state starts from its initial state."""
        known = state["signals"]
        names = reward_models.names(self.rewards.sources)
        heads = [known.index(name) if name in known else None for name in names]
        critics = {
            key: {**state[key], **own.heads_from(state[key], heads, len(known))}
            for key, own in self._values_by_key.items()
        }
        super().load_weights({**state, **critics})
        with torch.no_grad():
            self._log_alpha.copy_(state["log_alpha"])
