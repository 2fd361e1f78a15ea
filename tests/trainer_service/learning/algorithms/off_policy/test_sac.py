"""How soft actor-critic keeps time, keeps its experience, and goes on from a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from behavior_worlds import OneDecision, begin_world, run_ticks
from pydantic import ValidationError
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.config import SACSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, initialize, restore

AGENTS = 4


@pytest.fixture
def learner(small) -> Callable[..., Behavior]:
    sizes = {"batch_size": 16, "buffer_size": 60, "buffer_init_steps": 24, "steps_per_update": 4}
    seen = {"sizes": (2,), "continuous": 1, "branches": (3,), "normalize": True}
    return partial(small, "sac", **seen, **sizes)


@pytest.mark.parametrize(
    ("steps_per_update", "recorded", "due"),
    [(1.0, 10, 0), (1.0, 15, 5), (10.0, 109, 9), (10.0, 110, 10), (0.5, 12, 4), (2.5, 15, 2), (0.1, 11, 10)],
)
def test_updates_are_earned_by_steps_after_the_start(
    steps_per_update: float, recorded: int, due: int
) -> None:
    schedule = UpdateSchedule(10, steps_per_update)
    schedule.steps = recorded
    assert schedule.due == due
    schedule.updates = due
    assert schedule.due == 0


CURIOSITY = {"gamma": 0.8, "strength": 0.1, "network_settings": {"hidden_units": 8}}


@pytest.mark.parametrize(
    ("signals", "ends", "counts"),
    [({}, False, True), ({}, True, False), ({"curiosity": CURIOSITY}, True, True)],
)
def test_what_follows_is_worth_what_the_targets_say(
    learner, signals: dict[str, Any], ends: bool, counts: bool
) -> None:
    # Behind an end there is nothing, except for a signal that ignores it.
    behavior = learner(
        sizes=(2 if ends else SENSOR,),
        reward_signals={"extrinsic": {"gamma": 0.9, "strength": 1.0}, **signals},
    )
    world = OneDecision(AGENTS) if ends else ShortEpisodes(behavior.spec.action_spec)
    run_ticks(behavior, *begin_world(behavior, world), 8)
    with torch.no_grad():
        behavior.learner.networks["target_critics"].q.bias.add_(100.0)
    behavior.learner.replay.schedule.steps += AGENTS
    assert (behavior.learner.update(32)["Losses/Value Loss"] > 1000.0) == counts


def test_policy_and_temperatures_learn_once_for_several_steps_of_the_critics(learner) -> None:
    behavior = learner(policy_delay=3)
    world, batch = begin_world(behavior, OneDecision(AGENTS))
    batch = run_ticks(behavior, world, batch, 6)
    moved = []
    for _ in range(6):
        before = copy.deepcopy(dict(checkpoint_of(behavior).algorithm))
        batch = run_ticks(behavior, world, batch, 1)
        after = checkpoint_of(behavior).algorithm
        moved.append(
            {key for key in ("actor", "critics", "target_critics") if differ(before[key], after[key])}
        )
        assert torch.equal(before["log_alpha"], after["log_alpha"]) == ("actor" not in moved[-1])
    assert moved == [{"critics", "target_critics"}] * 2 + [{"actor", "critics", "target_critics"}] + moved[:3]


def test_critics_with_batch_normalization_have_no_targets_and_learn_moments(learner) -> None:
    behavior = learner(critic_norm="batch")
    world, batch = begin_world(behavior, OneDecision(AGENTS))
    batch = run_ticks(behavior, world, batch, 6)
    before = copy.deepcopy(dict(checkpoint_of(behavior).algorithm))
    run_ticks(behavior, world, batch, 1)
    after = checkpoint_of(behavior).algorithm
    assert "target_critics" not in after
    assert all(optimizer.adam.betas == (0.5, 0.999) for optimizer in behavior.learner.optimizers.values())
    assert before["critics"]["norms.0.batches"] == 0
    assert after["critics"]["norms.0.batches"] == 1
    changed = {
        name for name in after["critics"] if not torch.equal(before["critics"][name], after["critics"][name])
    }
    assert changed == set(after["critics"])


def test_settings_that_do_not_go_with_batch_normalization_are_refused(make_behavior) -> None:
    hyper = {"critic_norm": "batch"}
    with pytest.raises(ValidationError, match=r"critic_norm\n  expected none with a memory"):
        make_behavior(
            continuous=1, trainer_type="sac", hyperparameters=hyper, network_settings={"memory": {}}
        )
    told = SACSettings(critic_norm="batch", tau=0.1).remarks()
    assert [remark.location for remark in told] == [("tau",)]
    assert not [*SACSettings(critic_norm="batch", tau=0.005).remarks()], (
        "a run's own configuration has all defaults"
    )


def differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return any(not torch.equal(one[key], other[key]) for key in one)


def test_a_resumed_run_needs_the_checkpoints_reward_signals(learner) -> None:
    extrinsic, curiosity = {"gamma": 0.9, "strength": 1.0}, CURIOSITY
    trained = learner(reward_signals={"extrinsic": extrinsic, "curiosity": curiosity})
    run_ticks(trained, *begin_world(trained, OneDecision(AGENTS)), 12)
    order = "its reward signals are extrinsic, curiosity, not curiosity, extrinsic"
    gone, come = "reward_signals.curiosity was set, now not set", "reward_signals.rnd was not set, now set"
    for signals, named in (
        ({"curiosity": curiosity, "extrinsic": extrinsic}, order),
        ({"extrinsic": extrinsic, "rnd": curiosity}, f"{gone}, {come}"),
        ({"extrinsic": extrinsic}, gone),
    ):
        with pytest.raises(UserError, match=f"{named}$"):
            restore(learner(reward_signals=signals), checkpoint_of(trained))


def test_a_new_start_takes_the_reward_signals_that_it_knows(learner) -> None:
    extrinsic = {"extrinsic": {"gamma": 0.9, "strength": 1.0}}
    trained = learner(reward_signals={"curiosity": CURIOSITY, **extrinsic})
    run_ticks(trained, *begin_world(trained, OneDecision(AGENTS)), 20)
    fresh = learner(seed=9, reward_signals={**extrinsic, "rnd": CURIOSITY, "curiosity": CURIOSITY})
    before = copy.deepcopy(dict(checkpoint_of(fresh).algorithm))
    initialize(fresh, checkpoint_of(trained))
    theirs, ours = checkpoint_of(trained).algorithm, checkpoint_of(fresh).algorithm
    for critics in ("critics", "target_critics"):
        for key in ("q.weight", "q.bias"):  # three choices to a head
            found, known, own = (each[critics][key] for each in (ours, theirs, before))
            assert torch.equal(found[..., :3], known[..., 3:])
            assert torch.equal(found[..., 3:6], own[..., 3:6])
            assert torch.equal(found[..., 6:], known[..., :3])
        assert torch.equal(ours[critics]["body.0.weight"], theirs[critics]["body.0.weight"])
