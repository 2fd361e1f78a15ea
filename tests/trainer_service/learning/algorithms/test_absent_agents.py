"""Agents that are not there: whatever stands in their place moves no learner of groups.

Each learner lives twice through the same lives of agents that come late, die early and are cut off. Before it learns
for the second time, all that belongs to absent agents is overwritten.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat, observe
from unlike_agents import concatenated

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.config.hyperparameters.common import GroupSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.learning.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.replay.joint_transitions import JointSample
from trainer_service.learning.rollout.agent_padding import AgentPadding, padded_spec
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.records import BehaviorTick
from unity_bridge.simulators.scene import step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, MemberSpec
from unity_bridge.steps import Observation, StepBatch

LEADER = MemberSpec("Leader", (vector_sensor("eyes", 2),), ActionSpec(0, (3,)), 1)
RUNNER = MemberSpec("Runner", (vector_sensor("feet", 3),), ActionSpec(0, (2,)), 2)
TEAM = padded_spec((LEADER, RUNNER))
AGENTS, GROUPS = 3, 4
MEMORY = {"memory_size": 8, "sequence_length": 4, "type": "gru"}


class Lives:
    """Groups of one leader and two runners, who come, die and are cut off at any time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.padding = AgentPadding(TEAM)
        self.alive = np.zeros((GROUPS, AGENTS), np.bool_)

    def tick(self) -> StepBatch:
        ends = self.alive & (self.rng.random(self.alive.shape) < 0.15)
        ends[self.rng.random(GROUPS) < 0.1] = True
        ends &= self.alive
        comes = ~self.alive & (self.rng.random(self.alive.shape) < 0.3)
        self.alive = (self.alive & ~ends) | comes
        terminated = self.rng.random(self.alive.shape) < 0.5
        return concatenated(self.rows(ends, terminated), self.rows(self.alive, None))

    def rows(self, there: np.ndarray, terminated: np.ndarray | None) -> StepBatch:
        members = zip((LEADER, RUNNER), (range(1), range(1, AGENTS)), strict=True)
        return self.padding.merge([self.of_agents(there, *each, terminated) for each in members])

    def of_agents(
        self, there: np.ndarray, spec: MemberSpec, agents: range, terminated: np.ndarray | None
    ) -> StepBatch:
        groups, indices = np.nonzero(there[:, agents.start : agents.stop])
        indices += agents.start
        ends: dict[str, np.ndarray] = {}
        if terminated is not None:
            died = terminated[groups, indices]
            order = np.argsort(~died, kind="stable")
            groups, indices = groups[order], indices[order]
            ends = {"terminated": died[order], "truncated": ~died[order]}
        rows = len(groups)
        return step_batch(
            [
                self.rng.normal(size=(rows, *sensor.shape)).astype(np.float32)
                for sensor in spec.observation_specs
            ],
            self.rng.normal(size=rows).astype(np.float32),
            agent_ids=groups * AGENTS + indices,
            allowed_actions=np.ones((rows, spec.action_spec.mask_size), np.bool_),
            group_ids=1 + groups,
            **ends,
        )


def cases() -> Iterator[Any]:
    for trainer_type, hyper in HYPERPARAMETERS.items():
        if not issubclass(hyper, GroupSettings):
            continue
        memory = MEMORY if hyper.supports_memory else None
        for given in (
            {"share": "none", "reward_mode": "team_sum"},
            {"share": "group"},
        ):
            chosen = {key: value for key, value in given.items() if key in hyper.model_fields}
            yield pytest.param(trainer_type, chosen, memory, id="-".join((trainer_type, *chosen.values())))


def make(trainer_type: str, given: Mapping[str, str], memory: Any) -> Behavior:
    hyper: dict[str, Any] = {**given, "group_size": AGENTS, "batch_size": 24, "buffer_size": 10_000}
    if "num_epoch" in HYPERPARAMETERS[trainer_type].model_fields:
        hyper["num_epoch"] = 1
    if HYPERPARAMETERS[trainer_type].learns_from_replay:
        hyper |= {"buffer_init_steps": 150, "steps_per_update": 100}
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": hyper,
            "network_settings": {"hidden_units": 8, "num_layers": 1, "memory": memory},
            "time_horizon": 8,
            "max_steps": 10**6,
        }
    )
    behavior = Behavior("Team", TEAM, settings, Compute(torch.device("cpu"), 1))
    behavior.prepare()
    return behavior


def live(behavior: Behavior, ticks: int) -> None:
    world = Lives()
    for _ in range(ticks):
        observe(behavior, BehaviorTick(0, 0, world.tick()))
        behavior.collector.act()


def noise(sensors: tuple[Observation, ...], absent: np.ndarray) -> tuple[Observation, ...]:
    """Sensors with something else where nobody is."""
    rng = np.random.default_rng(5)
    changed = tuple(sensor.copy() for sensor in sensors)
    for sensor in changed:
        sensor[absent] = rng.normal(3.0, 2.0, sensor[absent].shape)
    return changed


def overwritten(sample: JointSample) -> JointSample:
    """A sample with noise in the place of absent agents' observations, memories and actions."""
    rng = np.random.default_rng(6)
    absent, next_absent = ~sample.present, ~sample.next_present
    assert absent.any()
    assert next_absent.any()
    choices, sequences = sample.discrete_actions.copy(), sample.sequences
    choices[absent] = rng.integers(0, 2, choices[absent].shape)
    if sequences is not None:
        memories = sequences.memories.copy()
        memories[absent] = rng.normal(size=memories[absent].shape)
        follow = noise(sequences.follow_observations, ~sequences.follow_present)
        sequences = replace(sequences, memories=memories, follow_observations=follow)
    return replace(
        sample,
        observations=noise(sample.observations, absent),
        next_observations=noise(sample.next_observations, next_absent),
        discrete_actions=choices,
        sequences=sequences,
    )


def elsewhere(seen: GroupInput, present: torch.Tensor) -> GroupInput:
    """Inputs in which absent agents are looked up at another place."""
    if seen.histories is None:
        return seen
    selected = seen.histories.selected.clone()
    generator = torch.Generator().manual_seed(7)
    selected[~present] = torch.randint(
        len(seen.histories.rows), (int((~present).sum()),), generator=generator
    )
    return seen._replace(histories=seen.histories._replace(selected=selected))


def overwrite_replayed(learner: ReplayLearner[JointMinibatch]) -> None:
    """Overwrites what belongs to absent agents in all that the learner draws from now on."""
    minibatch = learner.minibatch

    def changed(sample: JointSample) -> JointMinibatch:
        batch = minibatch(overwritten(sample))
        if batch.recurrent is None:
            return batch
        now, then = batch.recurrent
        places = elsewhere(now, batch.present), elsewhere(then, batch.next_present)
        return batch._replace(recurrent=places)

    learner.minibatch = changed


def without_the_dead(trajectories: Trajectories) -> Trajectories:
    """Trajectories with noise in the place of all that agents saw and remembered after they died."""
    dead, rng = trajectories.terminated, np.random.default_rng(8)
    assert dead.any()
    memories = trajectories.final_memories.copy()
    memories[dead] = rng.normal(size=memories[dead].shape)
    seen = trajectories.final_observations
    # The last sensor may be the agent's index, which says whose network it is that decides.
    return replace(
        trajectories, final_observations=(*noise(seen[:-1], dead), seen[-1]), final_memories=memories
    )


@pytest.mark.parametrize(("trainer_type", "given", "memory"), list(cases()))
def test_what_stands_for_absent_agents_moves_nothing(
    trainer_type: str, given: Mapping[str, str], memory: Any
) -> None:
    learned, told = [], []
    for changes in (False, True):
        behavior = make(trainer_type, given, memory)
        live(behavior, 40)
        learner = behavior.learner
        if changes and isinstance(learner, ReplayLearner):
            overwrite_replayed(learner)
        elif changes:
            assert isinstance(learner, OnPolicyLearner)
            collected = learner.buffer.drain()
            learner.buffer.add(without_the_dead(collected))
        before = flat(copy.deepcopy(learner.state_dict()))
        told.append(learner.update(0))
        learned.append(flat(learner.state_dict()))
    assert told[0] == told[1]
    assert_equal_states(*learned)
    weights = [name for name, value in before.items() if isinstance(value, torch.Tensor)]
    assert any(not torch.equal(before[name], learned[0][name]) for name in weights if "weight" in name)
