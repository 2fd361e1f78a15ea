"""Minibatches with a share of demonstrated steps: their rows, rewards, targets, streams, and what users are told."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from made_trajectories import trajectories_of
from tiny_worlds import Corridor

from trainer_service.config.hyperparameters.off_policy import DQNSettings
from trainer_service.learning.algorithms.common.off_policy.demonstrated_rows import DemonstratedRows
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.learning.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.learning.imitation import DemonstrationStore
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.replay.transitions import Sample, TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationWriter
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("a", (1,)),), ActionSpec(1, ()))
OWN, CAPACITY, SIZE = 20, 100, 8


def record(path: Path, *rewards: list[float], first: float = 1000.0, action: float = 0.5) -> Path:
    """Writes an episode for each list of rewards. Observations count up from ``first``; odd episodes only stop."""
    with DemonstrationWriter(path, "Shown", SPEC) as writer:
        for episode, paid in enumerate(rewards):
            seen = first + np.arange(len(paid) + 1, dtype=np.float32)[:, None]
            first += len(paid) + 1
            writer.write(
                DemonstratedSegment(
                    observations=(seen[:-1],),
                    continuous_actions=np.full((len(paid), 1), action, np.float32),
                    discrete_actions=np.zeros((len(paid), 0), np.int64),
                    rewards=np.array(paid, np.float32),
                    group_rewards=np.zeros(len(paid), np.float32),
                    final_observations=(seen[-1:],),
                    terminated=not episode % 2,
                    truncated=bool(episode % 2),
                    starts_episode=True,
                )
            )
    return path


def lived(count: int = OWN, scale: float = 1.0) -> Trajectories:
    """Own episodes of one step each, numbered by their observations."""
    column = np.arange(count, dtype=np.float32)
    return trajectories_of(
        [column[:, None]],
        [1] * count,
        continuous_actions=column[:, None] / count,
        rewards=np.full(count, scale, np.float32),
        final_observations=(-column[:, None],),
        terminated=np.ones(count, np.bool_),
    )


def sampler(
    path: Path, *, n_step: int = 1, shard: Shard = SINGLE_RANK, tells: bool = True, **replay: Any
) -> ReplaySampler[Sample]:
    """A sampler with two due gradient steps and twenty own rows."""
    hyper = DQNSettings.model_validate({"batch_size": SIZE, "replay": {"demo_path": str(path), **replay}})
    rows = DemonstratedRows(
        DemonstrationStore(str(path), SPEC),
        lambda capacity: TransitionReplay(SPEC, capacity, n_step=n_step, gamma=0.5),
        count=hyper.demonstrated_rows,
        own_capacity=CAPACITY,
        tells=tells,
    )
    rows.read()
    buffer = TransitionReplay(SPEC, CAPACITY, alpha=hyper.replay.priority_exponent, n_step=n_step, gamma=0.5)
    made = ReplaySampler(
        buffer, hyper, 1, UpdateSchedule(10, 5.0), UpdateSchedule(10, 5.0), shard=shard, demonstrations=rows
    )
    made.record(lived())
    return made


def minibatches(replay: ReplaySampler[Sample]) -> list[Sample]:
    found = []
    for sample in replay.minibatches(replay.rng()):
        found.append(sample)
        replay.finish_step(torch.ones(len(sample.rows)))
    return found


@pytest.mark.parametrize(("share", "shown"), [(0.5, 4), (0.25, 2), (0.01, 1), (0.99, 7)])
def test_a_minibatch_has_its_share_of_demonstrated_rows(tmp_path: Path, share: float, shown: int) -> None:
    samples = minibatches(sampler(record(tmp_path / "a.demo", [1.0] * 5, [2.0] * 4), demo_share=share))
    assert len(samples) == 2
    for sample in samples:
        demonstrated = sample.observations[0][:, 0] >= 1000
        assert demonstrated.tolist() == [False] * (SIZE - shown) + [True] * shown
        assert (sample.rows >= CAPACITY).tolist() == demonstrated.tolist()


def test_targets_of_demonstrations_end_where_the_recording_ends(tmp_path: Path) -> None:
    # Rewards 1, 2, 4 with γ = 0.5: two steps give 1 + 1, 2 + 2, and 4 alone. Then an episode that the clock ends.
    replay = sampler(record(tmp_path / "a.demo", [1.0, 2.0, 4.0], [8.0, 8.0]), n_step=2)
    known = {
        1000: (2.0, 0.25, 1002, False),
        1001: (4.0, 0.25, 1003, True),
        1002: (4.0, 0.5, 1003, True),
        1004: (12.0, 0.25, 1006, False),
        1005: (8.0, 0.5, 1006, False),
    }
    rng, met = np.random.default_rng(1), set()
    for _ in range(20):
        sample = replay.sample(rng)
        assert sample.discounts is not None
        for row in range(4, SIZE):
            seen = int(sample.observations[0][row, 0])
            found = sample.task_rewards[row], sample.discounts[row], sample.next_observations[0][row, 0]
            assert (*found, sample.terminated[row]) == known[seen]
            assert sample.continuous_actions[row, 0] == 0.5
            met.add(seen)
    assert met == set(known)


def test_single_steps_lie_at_the_rows_of_the_minibatch(tmp_path: Path) -> None:
    replay = sampler(record(tmp_path / "a.demo", [1.0, 2.0, 4.0]), n_step=2)
    sample = replay.sample(np.random.default_rng(2))
    shuffled = np.random.default_rng(3).permutation(SIZE)
    rows = sample.rows[shuffled]
    steps = replay.single_steps(rows, 2)
    later, row = steps.places
    begun = sample.observations[0][shuffled, 0]
    assert np.array_equal(steps.observations[0][:, 0], begun[row] + later)
    table = np.zeros((2, SIZE))
    table[later, row] = steps.task_rewards
    assert table[0] + 0.5 * table[1] == pytest.approx(sample.task_rewards[shuffled])


def test_priorities_are_of_own_rows_alone(tmp_path: Path) -> None:
    replay = sampler(record(tmp_path / "a.demo", [1.0] * 5), type="prioritized", alpha=1.0)
    sample = replay.sample(np.random.default_rng(1))
    assert sample.weights is not None
    assert sample.weights[4:].tolist() == [1.0] * 4
    replay.finish_step(torch.arange(8.0) + 10.0)
    priorities = replay.buffer.state()["priorities"]
    assert len(priorities) == OWN
    changed = {int(row): 10.0 + place for place, row in enumerate(sample.rows[:4])}
    assert [priorities[row] for row in range(OWN)] == pytest.approx(
        [changed.get(row, 1.0) for row in range(OWN)]
    )
    assert replay.metrics()["Replay/Largest Priority"] == pytest.approx(13.0)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_ordinary_recordings_cause_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replay = sampler(record(tmp_path / "a.demo", [-0.01] * 50 + [2.0]))
    for _ in range(10):
        replay.record(lived(scale=-0.01))  # no goal reached yet, at the same scale
    assert told(caplog) == []


@pytest.mark.parametrize(("reward", "action", "what"), [(0.0, 0.5, "reward"), (1.0, 0.0, "action")])
def test_a_recording_of_zeros_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reward: float, action: float, what: str
) -> None:
    sampler(record(tmp_path / "a.demo", [reward] * 5, action=action))
    (said,) = told(caplog)
    assert f"a.demo': every recorded {what} is 0" in said


@pytest.mark.parametrize("scale", [100.0, 0.01])
def test_rewards_of_another_scale_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scale: float
) -> None:
    replay = sampler(record(tmp_path / "a.demo", [scale] * 5))
    assert told(caplog) == []  # twenty own rewards are too few
    for _ in range(10):
        replay.record(lived())
    (said,) = told(caplog)
    assert f"a.demo': the recorded rewards are about {scale:.2g} times those of this run" in said


def walk() -> Corridor:
    return Corridor(3, lambda seen, does: does.continuous[:, 0], choices=0)


GAIL = {"use_actions": True, "network_settings": {"hidden_units": 8, "num_layers": 1}}


@pytest.fixture
def make(make_behavior, tmp_path: Path):
    """A learner of continuous actions beside a recording."""
    path = record(tmp_path / "shown.demo", [1.0, 2.0, 3.0], [1.0] * 5, first=0.0)

    def build(trainer: str, *, seed: int = 1, signals: bool = False, **replay: Any) -> Behavior:
        rewards = {"gail": {**GAIL, "demo_path": str(path)}, "curiosity": {}} if signals else {}
        made: Behavior = make_behavior(
            sizes=(1,),
            continuous=1,
            seed=seed,
            trainer_type=trainer,
            hyperparameters={
                "batch_size": 8,
                "buffer_size": 200,
                "buffer_init_steps": 8,
                "steps_per_update": 4,
                "save_replay_buffer": True,
                "replay": {"demo_path": str(path), **replay},
                **({} if trainer == "sac" else {"n_step": 2}),
            },
            network_settings={"hidden_units": 8, "num_layers": 1},
            reward_signals={"extrinsic": {}, **rewards},
            max_steps=10_000,
        )
        return made

    return build


@pytest.mark.parametrize("trainer", ["sac", "td3"])
def test_a_run_with_demonstrations_resumes_bit_for_bit(make, live, tmp_path: Path, trainer: str) -> None:
    straight = make(trainer, signals=True)
    live(straight, walk(), 4)
    save_checkpoint(checkpoint_of(straight), tmp_path / "checkpoint.safetensors")
    experience = copy.deepcopy(straight.learner.replay_state())
    resumed = make(trainer, seed=99, signals=True)
    restore(resumed, load_checkpoint(tmp_path / "checkpoint.safetensors"))
    resumed.learner.load_replay_state(experience)
    for behavior in (straight, resumed):
        behavior.collector.drop(0)
        live(behavior, walk(), 3)
    assert_equal_states(*(flat(checkpoint_of(each).algorithm) for each in (straight, resumed)))
