"""Worlds made by hand, ticked with behaviors in them, and comparisons of their states."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from replay_files import save_replay_file

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, load_replay, restore
from trainer_service.running.collection.collector import BehaviorTick
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch


class World(Protocol):
    """A world with agents that are all asked at every tick."""

    seen: np.ndarray
    """The observations now, a row for each agent."""

    def begin(self) -> StepBatch: ...

    def step(self, actions: ActionBatch) -> StepBatch: ...

    def rows(self, rewards: np.ndarray) -> StepBatch:
        """The rows of all agents, which see ``seen`` and earn these rewards."""
        ...


Kind = TypeVar("Kind", bound=World)


class OneDecision:
    """Episodes of one decision, paid by what was seen and done: nothing is unfinished between two ticks."""

    def __init__(self, agents: int, choices: int = 3) -> None:
        """choices: 3 of one branch, or 0 for none."""
        self.rng = np.random.default_rng(1)
        self.agents = agents
        self.choices = choices

    def begin(self) -> StepBatch:
        self.seen = (3.0 * self.rng.normal(size=(self.agents, 2))).astype(np.float32)
        return self.rows(np.zeros(self.agents))

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = self.seen[:, 0] * actions.continuous[:, 0] + actions.discrete.sum(axis=1)
        return concatenate(self.rows(paid, terminated=np.ones(self.agents, np.bool_)), self.begin())

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        allowed = np.ones((self.agents, self.choices), np.bool_)
        allowed[:, 2:] = self.seen[:, 1:2] > 0
        ids = np.arange(self.agents, dtype=np.int64)
        return step_batch(
            [self.seen], rewards.astype(np.float32), agent_ids=ids, allowed_actions=allowed, **ends
        )


CORRIDORS = 6
"""Agents that walk a Corridor, each its own."""


class Corridor:
    """A cue at the start, nothing but noise on the way, and at the end a choice or a number that should equal it."""

    def __init__(self, seed: int, lengths: tuple[int, ...] = (4,), choices: int = 2) -> None:
        self.choices = choices
        self.rng = np.random.default_rng(seed)
        self.lengths = lengths
        self.returns: list[float] = []

    def begin(self) -> StepBatch:
        self.cue, self.noise = np.empty(CORRIDORS), np.empty(CORRIDORS)
        self.time, self.end = np.empty(CORRIDORS, np.int64), np.empty(CORRIDORS, np.int64)
        everyone = np.ones(CORRIDORS, np.bool_)
        self._enter(everyone)
        return self.rows(everyone, np.zeros(CORRIDORS))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        right = [np.sign(actions.continuous) == self.cue[:, None]]
        right.append((actions.discrete == 1) == (self.cue > 0)[:, None])
        ended = self.time == self.end
        share = np.concatenate(right, axis=1).mean(axis=1)
        paid = np.where(ended, 2.0 * share - 1.0, 0.0)
        self.returns += paid[ended].tolist()
        self.noise = self.rng.normal(size=CORRIDORS)
        terminal = self.rows(ended, paid, terminated=np.ones(ended.sum(), np.bool_))
        self._enter(ended)
        return concatenate(terminal, self.rows(np.ones(CORRIDORS, np.bool_), paid))

    def _enter(self, who: np.ndarray) -> None:
        self.time[who] = 0
        self.cue[who] = self.rng.choice([-1.0, 1.0], who.sum())
        self.end[who] = self.rng.choice(self.lengths, who.sum())
        self.noise[who] = self.rng.normal(size=who.sum())

    def rows(self, who: np.ndarray, rewards: np.ndarray, **ends: Any) -> StepBatch:
        """The observations: the cue at first, whether this is the choice, and noise."""
        seen = [np.where(self.time == 0, self.cue, 0.0), self.time == self.end - 1, 0.1 * self.noise]
        return step_batch(
            [np.stack(seen, axis=1)[who].astype(np.float32)],
            rewards[who].astype(np.float32),
            agent_ids=np.flatnonzero(who),
            allowed_actions=np.ones((int(who.sum()), self.choices), np.bool_),
            **ends,
        )


def observe(behavior: Behavior, steps: BehaviorTick) -> None:
    """Collects a tick and adds what it completed, as a run does."""
    behavior.add(behavior.collector.observe(steps))


def live_in(behavior: Behavior, world: Corridor, batch: StepBatch, ticks: int) -> StepBatch:
    for _ in range(ticks):
        observe(behavior, BehaviorTick(0, 0, batch))
        if behavior.ready_to_update():
            behavior.update()
        batch = world.step(behavior.collector.act()[0])
    return batch


def returns_after(behavior: Behavior, ticks: int, episodes: int = 60) -> float:
    """The mean return of a behavior's likeliest actions in corridors, after it lived and learned in them."""
    world = Corridor(1, choices=behavior.spec.action_spec.mask_size)
    live_in(behavior, world, world.begin(), ticks)
    policy, world = Policy(checkpoint_of(behavior)), Corridor(101, choices=world.choices)
    batch, memories, starts = world.begin(), None, None
    while len(world.returns) < episodes:
        seen = batch.observations[0][batch.num_terminal :]
        actions, memories = policy.predict([seen], memories, episode_starts=starts)
        batch = world.step(actions)
        starts = np.isin(np.arange(CORRIDORS), batch.agent_ids[: batch.num_terminal])
    return float(np.mean(world.returns))


def begin_world(behavior: Behavior, world: Kind) -> tuple[Kind, StepBatch]:
    """Shows a behavior the first tick of a world. Returns both."""
    first = world.begin()
    observe(behavior, BehaviorTick(0, 0, first))
    return world, first


def run_ticks(behavior: Behavior, world: World, batch: StepBatch, ticks: int) -> StepBatch:
    """Runs so many ticks, and updates whenever the behavior is ready. Returns the tick that waits for an answer."""
    for _ in range(ticks):
        batch = world.step(behavior.collector.act()[0])
        observe(behavior, BehaviorTick(0, 0, batch))
        if behavior.ready_to_update():
            behavior.update()
    return batch


def state(behavior: Behavior) -> dict[str, Any]:
    """A copy of all that a run saves, replay buffer included, by its path."""
    experience = {
        name: torch.from_numpy(array) for name, array in (behavior.learner.replay_state() or {}).items()
    }
    return flat(copy.deepcopy({**checkpoint_of(behavior).algorithm, "experience": experience}))


def flat(content: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of nested dicts and lists, by its path."""
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        return {name: leaf for key, value in items for name, leaf in flat(value, f"{path}/{key}").items()}
    return {path: content}


def assert_equal_states(some: dict[str, Any], others: dict[str, Any]) -> None:
    """Asserts that two results of ``flat`` are equal to the last bit."""
    assert some.keys() == others.keys()
    for name, value in some.items():
        equal = torch.equal(value, others[name]) if isinstance(value, torch.Tensor) else value == others[name]
        assert equal, f"{name} differs"


def assert_resumes_exactly(
    make: Callable[..., Behavior], world: World, folder: Path, ticks: int, *, more: int
) -> Behavior:
    """Asserts that a behavior saved after so many ticks, and loaded, goes through ``more`` as if it had never stopped.

    Returns the behavior that never stopped. make: the same behavior each time, of a ``seed``.
    """
    straight = make(seed=1)
    batch = run_ticks(straight, *begin_world(straight, world), ticks)
    save_checkpoint(checkpoint_of(straight), folder / "checkpoint.safetensors")
    experience = straight.learner.replay_state()
    if experience is not None:
        save_replay_file(experience, folder / "replay.npz")

    resumed, its_world = make(seed=99), copy.deepcopy(world)
    restore(resumed, load_checkpoint(folder / "checkpoint.safetensors"))
    if experience is not None:
        load_replay(resumed, folder / "replay.npz")
    observe(resumed, BehaviorTick(0, 0, its_world.rows(np.zeros(len(its_world.seen)))))
    assert resumed.step == straight.step
    assert_equal_states(state(resumed), state(straight))

    run_ticks(straight, world, batch, more)
    run_ticks(resumed, its_world, batch, more)
    assert resumed.step == straight.step
    assert_equal_states(state(resumed), state(straight))
    return straight
