"""Worlds of teams whose members see and do different things, padded to one behavior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.rollout.agent_padding import AgentPadding, padded_spec
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch, StepBatch


def make_team(members: Sequence[MemberSpec], seed: int = 1, **settings: Any) -> Behavior:
    """A behavior that learns for the team of these members, sized as they are."""
    spec = padded_spec(members)
    hyper = {
        **settings.pop("hyperparameters", {}),
        "group_size": sum(member.num_agents for member in members),
    }
    chosen = TrainerSettings.model_validate({**settings, "hyperparameters": hyper})
    behavior = Behavior("Team", spec, chosen, Compute(torch.device("cpu"), seed))
    behavior.prepare()
    return behavior


class UnlikeWorld:
    """Copies of a world for one agent of each of two members. A subclass says what is seen, and what a step pays."""

    members: Sequence[MemberSpec]
    copies = 16

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.padding = AgentPadding(padded_spec(self.members))
        self.seen: list[list[np.ndarray]] = []
        """Of each member, each sensor."""

    @property
    def spec(self) -> BehaviorSpec:
        return padded_spec(self.members)

    def see(self) -> list[list[np.ndarray]]:
        """New observations of each member, [copies, …] for each sensor."""
        raise NotImplementedError

    def pay(self, actions: Sequence[ActionBatch]) -> tuple[Sequence[np.ndarray], np.ndarray | float]:
        """What each member's agents earn themselves, and their group."""
        raise NotImplementedError

    def begin(self) -> StepBatch:
        self.seen = self.see()
        return self.rows()

    def step(self, actions: ActionBatch) -> StepBatch:
        """One decision, and the end of the episode."""
        own, group = self.pay(
            self.padding.split(actions, np.repeat(np.arange(len(self.members)), self.copies))
        )
        ended = self.rows(own, group, terminated=np.ones(self.copies, np.bool_))
        return concatenated(ended, self.begin())

    def rows(
        self, own: Sequence[np.ndarray] | None = None, group: np.ndarray | float = 0.0, **ends: Any
    ) -> StepBatch:
        """The rows of all agents, padded."""
        batches = []
        for number, member in enumerate(self.members):
            earned = np.zeros(self.copies) if own is None else own[number]
            batches.append(
                step_batch(
                    [sensor.astype(np.float32) for sensor in self.seen[number]],
                    np.broadcast_to(earned, self.copies).astype(np.float32),
                    agent_ids=number * self.copies + np.arange(self.copies),
                    allowed_actions=np.ones((self.copies, member.action_spec.mask_size), np.bool_),
                    group_ids=1 + np.arange(self.copies),
                    group_rewards=np.broadcast_to(np.float32(group), self.copies).astype(np.float32),
                    **ends,
                )
            )
        return self.padding.merge(batches)


def concatenated(ended: StepBatch, begun: StepBatch) -> StepBatch:
    """Both batches of a team in one, ended rows first."""
    assert ended.members is not None
    assert begun.members is not None
    return replace(concatenate(ended, begun), members=np.concatenate([ended.members, begun.members]))
