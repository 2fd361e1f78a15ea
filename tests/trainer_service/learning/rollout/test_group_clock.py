"""What a group earns, from members that decide at different ticks: it counts once, whoever reports it and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from replayed import gathered

from trainer_service.config.rewards import ExtrinsicSettings
from trainer_service.learning.algorithms.common.on_policy.group_rollout import group_advantages
from trainer_service.learning.algorithms.common.on_policy.rollout import MinibatchSampler, make_group_rollout
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.replay.joint_transitions import JointReplay
from trainer_service.learning.rewards.extrinsic import ExtrinsicReward
from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.assembler import Decisions, TrajectoryAssembler
from trainer_service.learning.rollout.group_returns import GroupReturns
from trainer_service.learning.rollout.joint_steps import find_joint_steps
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.simulators.scene import concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec((vector_sensor("tick", 1),), ActionSpec(discrete_branches=(2,)))
END = 40


@dataclass
class Member:
    """An agent that decides each ``period`` ticks."""

    first: int
    """Tick of its first decision."""
    period: int
    last: int = END
    """Tick at which its episode ends."""
    joined: int | None = None
    """Tick from which on it adds up what the group earns; None for that of its first decision."""

    def reports(self, tick: int) -> bool:
        return tick == self.last or (
            self.first <= tick < self.last and (tick - self.first) % self.period == 0
        )


def staggered(members: int, by: int, period: int) -> list[Member]:
    return [Member(by * number, period) for number in range(members)]


@dataclass
class Group:
    """Batches of a group of members. ``earns``: what the group earns in the tick that ends at this one."""

    members: Sequence[Member]
    earns: Callable[[int], float] = lambda tick: 1.0
    newest_first: bool = False
    paid: dict[int, float] = field(default_factory=dict)

    def total(self, tick: int) -> float:
        return sum(map(self.earns, range(1, tick + 1)))

    def batches(self) -> Iterator[StepBatch]:
        order = list(enumerate(self.members, start=1))
        for tick in range(max(member.last for member in self.members) + 1):
            due = [
                (agent, each)
                for agent, each in order[:: -1 if self.newest_first else 1]
                if each.reports(tick)
            ]
            ended = [self.row(agent, each, tick) for agent, each in due if tick == each.last]
            deciding = [self.row(agent, each, tick) for agent, each in due if tick < each.last]
            if due:
                yield concatenate(self.rows(ended, tick, True), self.rows(deciding, tick, False))

    def row(self, agent: int, member: Member, tick: int) -> tuple[int, float]:
        start = member.first if member.joined is None else member.joined
        reward = self.total(tick) - self.paid.get(agent, self.total(start))
        self.paid[agent] = self.total(tick)
        return agent, reward

    def rows(self, given: Sequence[tuple[int, float]], tick: int, over: bool) -> StepBatch:
        ids, shared = np.array(given, float).reshape(-1, 2).T
        return replace(
            step_batch(
                [np.full((len(given), 1), tick, np.float32)],
                np.zeros(len(given), np.float32),
                agent_ids=ids.astype(np.int64),
                terminated=np.full(len(given), over),
                allowed_actions=np.ones((len(given), 2), np.bool_),
            ),
            group_ids=np.full(len(given), 7),
            group_rewards=shared.astype(np.float32),
        )


def collect(group: Group, horizon: int) -> tuple[list[Trajectories], list[float]]:
    """The trajectories and returns of a group."""
    assembler, allocator = TrajectoryAssembler(SPEC, horizon, by_group=True), AgentIndexAllocator()
    returns, found, told = GroupReturns(), [], []
    for batch in group.batches():
        clocks = returns.observe(0, 0, batch)
        told += clocks.returns.tolist()
        observed = assembler.observe(0, 0, batch, allocator.assign(0, 0, batch), clocks)
        if observed.trajectories is not None:
            found.append(observed.trajectories)
        first, count = batch.num_terminal, len(observed.waiting)
        decisions = Decisions(
            np.zeros((count, 0), np.float32), np.ones((count, 1), np.int64), np.zeros(count, np.float32),
            np.zeros((count, 0), np.float32),
        )  # fmt: skip
        seen = tuple(sensor[first:] for sensor in batch.observations)
        assembler.acted(observed.waiting, seen, batch.allowed_actions[first:], decisions)
    return found, told


def sums(group: Group, horizon: int) -> Mapping[str, float]:
    """What a group has earned in all, as each kind of learner and the reports have it."""
    trajectories, told = collect(group, horizon)
    members = len(group.members)
    replay = JointReplay(SPEC, 1000, num_agents=members, discount=0.5, team=True)
    on_policy = 0.0
    for each in trajectories:
        replay.add(each)
        sources = [ExtrinsicReward(SPEC, ExtrinsicSettings(gamma=1.0), torch.device("cpu"))]
        sampler = MinibatchSampler(len(each), 1, torch.device("cpu"))
        normalizer = ObservationNormalizer(SPEC.observation_specs, normalize=False)
        rollout = make_group_rollout(
            each, sources, normalizer, sampler, reward_sensors=[0], num_agents=members
        )
        no_values = np.zeros((len(rollout.joint_steps), 1, 1))
        estimate = group_advantages(rollout, sources, no_values, gae_lambda=0.0)  # the rewards themselves
        on_policy += float(estimate.returns[estimate.mask].sum())
    off_policy = float(gathered(replay).summed_rewards.sum())
    return {"on policy": on_policy, "off policy": off_policy, "told": sum(told)}


def approximately(total: float) -> Mapping[str, float]:
    return {kind: pytest.approx(total, abs=1e-4) for kind in ("on policy", "off policy", "told")}


@pytest.mark.parametrize("horizon", [3, 64])
@pytest.mark.parametrize(("members", "by"), [(2, 1), (3, 0), (4, 1), (4, 3)])
def test_a_groups_reward_counts_once_however_its_members_are_staggered(
    members: int, by: int, horizon: int
) -> None:
    assert sums(Group(staggered(members, by, 4)), horizon) == approximately(END)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("horizon", [3, 64])
def test_rewards_of_both_signs_add_up(horizon: int, newest_first: bool) -> None:
    noise = np.random.default_rng(4).normal(size=END + 1)
    group = Group(staggered(4, 1, 4), lambda tick: float(noise[tick]), newest_first)
    assert sums(group, horizon) == approximately(group.total(END))


@pytest.mark.parametrize("horizon", [3, 64])
def test_a_leader_that_decides_rarely_adds_nothing(horizon: int) -> None:
    members = [Member(3, 10), Member(0, 1), Member(0, 1)]
    assert sums(Group(members), horizon) == approximately(END)


@pytest.mark.parametrize("joined", [None, 0])
@pytest.mark.parametrize("horizon", [3, 64])
def test_the_oldest_member_dies_while_others_act(horizon: int, joined: int | None) -> None:
    members = [Member(0, 4, last=17), *(Member(n, 4, joined=joined) for n in (1, 2, 3))]
    assert sums(Group(members), horizon) == approximately(END)


def test_all_members_are_replaced_one_after_the_other() -> None:
    members = [Member(8 * n, 4, last=min(8 * n + 16, END)) for n in range(5)]
    assert sums(Group(members), 64) == approximately(END)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_newcomer_between_two_reports_changes_no_sum(newest_first: bool) -> None:
    """The group earns 5 before the newcomer joins, and 1 at its end."""
    group = Group([Member(0, 3, last=4), Member(2, 1, last=4)], lambda tick: {1: 5.0, 4: 1.0}.get(tick, 0.0))
    group.newest_first = newest_first
    assert sums(group, 64) == approximately(6.0)


def test_a_reward_counts_at_the_joint_step_before_its_first_report() -> None:
    """The group earns 2 in the tick that ends at 5. Members report at 0, 4, 8 and at 1, 5, 9."""
    (trajectories,), _ = collect(
        Group([Member(0, 4, last=12), Member(1, 4, last=12)], lambda tick: 2.0 * (tick == 5)), 64
    )
    joint_steps = find_joint_steps(trajectories, 2)
    # Decisions at 0, 1, 4, 5, 8, 9.
    assert joint_steps.group_rewards[joint_steps.in_time()].tolist() == [0, 0, 2, 0, 0, 0]


def test_discounts_count_an_agents_own_steps() -> None:
    """Two members in turn: a joint step is half of a step of each, so that γ counts once for each."""
    (trajectories,), _ = collect(Group([Member(0, 2, last=8), Member(1, 2, last=8)]), 64)
    joint_steps = find_joint_steps(trajectories, 2)
    assert joint_steps.durations is not None
    # The last of the first one's steps is from 6 to 8, that of the second one from 7 to 8.
    assert joint_steps.durations.tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.75])
    together, _ = collect(Group([Member(0, 2, last=8), Member(0, 2, last=8)]), 64)
    assert find_joint_steps(together[0], 2).durations is None


@pytest.mark.parametrize("horizon", [2, 3, 64])
def test_every_decision_is_in_one_group_trajectory_with_the_others_of_its_time(horizon: int) -> None:
    trajectories, _ = collect(Group(staggered(4, 1, 4)), horizon)
    ticks = [int(tick) for each in trajectories for tick in each.observations[0][:, 0]]
    assert sorted(ticks) == list(range(END))
    for each in trajectories:
        index = each.group_index
        assert index is not None
        assert len(set(index.groups)) == 1
        assert sorted(index.agent_indices) == [0, 1, 2, 3]
        # Its decisions are all that there were between the first and the last.
        assert sorted(index.ticks) == list(range(min(index.ticks), max(index.ticks) + 1))
