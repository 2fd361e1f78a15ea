"""The replay of joint steps against dictionaries, on groups with agents that join, die, and decide at odd times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from group_lives import NUM_AGENTS, SPEC, GroupLife, allowed_of, picture_of
from replayed import gathered

from trainer_service.learning.replay.joint_transitions import JointReplay, JointSample
from trainer_service.learning.rollout.trajectories import Trajectories

GAMMA = 0.5


@dataclass
class Decided:
    """One agent's part of a joint step."""

    number: int
    own: float
    common: float
    next: Decided | None = None
    """Its own next decision."""
    final: int | None = None
    """What it saw last; None where it decides again, or its task ended."""
    terminated: bool = False
    joint_step: int = -1


@dataclass
class JointStep:
    """The agents that decided at a tick."""

    agents: dict[int, Decided]
    """By agent index."""
    held: dict[int, Decided] = field(default_factory=dict)
    """Earlier decisions upon which agents still act."""
    group_reward: float = 0.0
    duration: float = 1.0


def joint_steps_of(trajectories: Trajectories) -> list[list[JointStep]]:
    """Group trajectories of joint steps, by plain loops."""
    group_index, ended = trajectories.group_index, trajectories.ended
    assert group_index is not None
    assert ended is not None
    found: dict[int, dict[int, JointStep]] = {}
    clocks: dict[int, dict[int, float]] = {}
    spans: dict[int, list[tuple[int, int]]] = {}
    running: list[tuple[int, int, int, int, Decided]] = []
    """Group, agent index, first and last tick of each decision."""
    finals: dict[int, list[tuple[int, bool]]] = {}
    step = 0
    for segment, length in enumerate(trajectories.lengths.tolist()):
        group, final = int(group_index.groups[segment]), int(group_index.final_ticks[segment])
        ticks = [int(tick) for tick in group_index.ticks[step : step + length]]
        spans.setdefault(group, []).extend(pairwise([*ticks, final]))
        finals.setdefault(group, []).append((final, not ended[segment]))
        clocks.setdefault(group, {}).setdefault(final, float(group_index.final_earned[segment]))
        before: Decided | None = None
        for tick, following in pairwise([*ticks, final]):
            decided = Decided(
                int(trajectories.observations[0][step, 0]),
                float(trajectories.rewards[step]),
                float(trajectories.group_rewards[step]),
            )
            joint_step = found.setdefault(group, {}).setdefault(tick, JointStep({}))
            index = int(group_index.agent_indices[segment])
            joint_step.agents[index] = decided
            running.append((group, index, tick, following, decided))
            clocks[group][tick] = float(group_index.earned[step])
            if before is not None:
                before.next = decided
            before = decided
            step += 1
        assert before is not None
        before.terminated = bool(trajectories.terminated[segment])
        if not before.terminated:
            before.final = int(trajectories.final_observations[0][segment, 0])
    for group, index, first, last, decided in running:
        for tick, joint_step in found[group].items():
            if first < tick < last:
                joint_step.held[index] = decided
    for group, of_group in found.items():
        cut = [final for final, is_cut in finals[group] if is_cut and final > max(of_group)]
        end = min(cut) if cut else max(final for final, _ in finals[group])
        for tick, following in pairwise([*sorted(of_group), end]):
            parts = [
                (min(following, last) - tick) / (last - first)
                for first, last in spans[group]
                if first <= tick < last
            ]
            joint_step = of_group[tick]
            joint_step.group_reward = clocks[group][following] - clocks[group][tick]
            joint_step.duration = float(np.mean(parts))
    return [[of[tick] for tick in sorted(of)] for _, of in sorted(found.items())]


@dataclass
class Expected:
    """A row of a sample, absent agents left out."""

    seen: dict[int, int]
    held: set[int]
    """Agents whose decision is an earlier one."""
    next: dict[int, int]
    rewards: dict[int, float]
    summed_rewards: float
    terminated: set[int]
    discounts: dict[int, float]
    next_held: set[int] = field(default_factory=set)


def choices_of(numbers: np.ndarray, held: set[int]) -> np.ndarray:
    """The allowed choices: only those that were made, of agents that act upon an earlier decision."""
    allowed = allowed_of(numbers)
    for agent in held:
        allowed[agent] = False
        allowed[agent, [numbers[agent] % 2, 2 + numbers[agent] % 3]] = True
    return allowed


def expected(group_trajectory: list[JointStep], at: int, n_step: int, *, follow_agents: bool) -> Expected:
    decided = group_trajectory[at].agents
    held = {} if follow_agents else group_trajectory[at].held
    window = group_trajectory[at : at + n_step]
    *elapsed, whole = np.cumsum([0.0, *(each.duration for each in window)])
    team = sum(
        GAMMA**k * (sum(d.own for d in each.agents.values()) + each.group_reward)
        for k, each in zip(elapsed, window, strict=True)
    )
    everyone = {**decided, **held}
    found = Expected({s: d.number for s, d in everyone.items()}, {*held}, {}, {}, team, set(), {})
    lasts = {}
    for agent_index, first in everyone.items():
        own = [first]
        while len(own) < n_step and own[-1].next is not None:
            own.append(own[-1].next)
        if not follow_agents:
            numbers = {
                id(d): k for k, each in zip(elapsed, window, strict=True) for d in each.agents.values()
            }
            own = [d for d in own if id(d) in numbers]
            powers = [numbers[id(d)] for d in own]
        else:
            powers = [float(k) for k in range(len(own))]
        found.rewards[agent_index] = sum(
            GAMMA**k * (d.own + d.common) for k, d in zip(powers, own, strict=True)
        )
        found.discounts[agent_index] = GAMMA ** (len(own) if follow_agents else whole)
        final = (own or [first])[-1]
        lasts[agent_index] = final
        beyond = group_trajectory[at + n_step : at + n_step + 1]
        if final.terminated and not (
            not follow_agents and any(final in [*each.held.values()] for each in beyond)
        ):
            found.terminated.add(agent_index)
    if not follow_agents:
        lasts = {index: d for each in window for index, d in {**each.held, **each.agents}.items()}
        if at + n_step < len(group_trajectory):
            following = {**group_trajectory[at + n_step].held, **group_trajectory[at + n_step].agents}
            found.next = {agent_index: d.number for agent_index, d in following.items()}
            found.next_held = {*group_trajectory[at + n_step].held}
    for agent_index, last in lasts.items():
        if agent_index in found.next:
            continue
        if last.next is not None:
            found.next[agent_index] = last.next.number
        elif last.final is not None:
            found.next[agent_index] = last.final
    return found


def by_agent(there: np.ndarray, values: np.ndarray) -> dict[int, Any]:
    return {agent_index: values[agent_index].item() for agent_index in np.flatnonzero(there).tolist()}


def check(sample: JointSample, row: int, wanted: Expected) -> None:
    there, then = sample.present[row], sample.next_present[row]
    seen, following = sample.observations[0][row, :, 0], sample.next_observations[0][row, :, 0]
    assert by_agent(there, seen) == wanted.seen
    assert by_agent(then, following) == wanted.next
    assert not seen[~there].any()
    assert not following[~then].any()
    assert by_agent(there, sample.rewards[row]) == pytest.approx(wanted.rewards)
    assert sample.summed_rewards[row] == pytest.approx(wanted.summed_rewards)
    assert set(np.flatnonzero(sample.terminated[row]).tolist()) == wanted.terminated
    assert by_agent(there, sample.discounts[row]) == pytest.approx(wanted.discounts)
    numbers = seen.astype(np.int64)
    np.testing.assert_array_equal(sample.observations[1][row], picture_of(numbers))
    np.testing.assert_array_equal(sample.next_observations[1][row], picture_of(following.astype(np.int64)))
    np.testing.assert_array_equal(
        sample.allowed_actions[row], np.where(there[:, None], choices_of(numbers, wanted.held), True)
    )
    next_choices = choices_of(following.astype(np.int64), wanted.next_held)
    allowed_next = np.where(then[:, None], next_choices, True)
    np.testing.assert_array_equal(sample.next_allowed_actions[row], allowed_next)
    np.testing.assert_array_equal(sample.discrete_actions[row, :, 1], numbers % 3)
    np.testing.assert_allclose(sample.continuous_actions[row, :, 0], seen / 10, rtol=1e-6)


def fill(replay: JointReplay, life: GroupLife, ticks: int) -> list[tuple[list[JointStep], int]]:
    """The joint steps that the buffer should hold, oldest first."""
    reference: list[tuple[list[JointStep], int]] = []
    for _, trajectories in zip(range(ticks), life, strict=False):
        replay.add(trajectories)
        for group_trajectory in joint_steps_of(trajectories):
            reference += [(group_trajectory, at) for at in range(len(group_trajectory))]
    return reference[-replay.capacity :]


def ordered(replay: JointReplay) -> np.ndarray:
    """All rows, oldest first."""
    oldest = replay._head if len(replay) == replay.capacity else 0
    return (oldest + np.arange(len(replay))) % replay.capacity


def make(capacity: int, **changes: Any) -> JointReplay:
    return JointReplay(SPEC, capacity, num_agents=NUM_AGENTS, discount=GAMMA, **changes)


@pytest.mark.parametrize(
    ("capacity", "n_step", "follow_agents", "together"),
    [
        (7, 3, False, False),
        (7, 1, False, False),
        (7, 1, True, True),
        (40, 3, True, False),
        (40, 3, False, True),
        (5000, 3, False, False),
    ],
)
def test_it_holds_what_plain_loops_find(
    capacity: int, n_step: int, follow_agents: bool, together: bool
) -> None:
    replay = make(capacity, n_step=n_step, follow_agents=follow_agents)
    reference = fill(replay, GroupLife(capacity + n_step, together=together), 40)
    assert len(replay) == len(reference)
    sample = gathered(replay, ordered(replay))
    for row, (group_trajectory, at) in enumerate(reference):
        check(sample, row, expected(group_trajectory, at, n_step, follow_agents=follow_agents))


@pytest.mark.parametrize("after", [20, 300])
def test_a_buffer_of_another_size_keeps_the_newest(after: int) -> None:
    saved, fresh, life = make(60), make(after), GroupLife(2)
    reference = fill(saved, life, 80)
    fresh.load_state(saved.state())
    reference = [*reference[-after:], *fill(fresh, life, 10)][-after:]
    sample = gathered(fresh, ordered(fresh))
    for row, (group_trajectory, at) in enumerate(reference):
        check(sample, row, expected(group_trajectory, at, 1, follow_agents=False))


def test_what_was_predicted_badly_is_drawn_more_often() -> None:
    replay = make(64, alpha=1.0)
    fill(replay, GroupLife(4), 60)
    assert len(replay) == 64
    errors = np.full(64, 0.01)
    errors[5] = 1.0
    replay.reprioritize(np.arange(64), errors)
    sample = replay.sample(1000, np.random.default_rng(0), beta=1.0)
    assert (sample.rows == 5).mean() == pytest.approx(1.0 / 1.63, abs=0.01)
    assert sample.weights is not None
    assert sample.weights[sample.rows == 5].max() == pytest.approx(0.01, rel=0.01)


def test_trajectories_without_groups_are_refused() -> None:
    trajectories = replace(next(iter(GroupLife(1))), group_index=None)
    with pytest.raises(ValueError, match="do not say which agents acted together"):
        make(10).add(trajectories)
