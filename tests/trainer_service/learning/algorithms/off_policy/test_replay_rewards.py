"""What learned rewards add to the targets of learners with one value, and that they change nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import begin_world, run_ticks, state
from numbered_lives import SPEC, lives, lives_of_group
from replayed import gathered
from short_episodes import DECISIONS, GROUP, SENSOR, ShortEpisodes

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.learning.rewards import Experience
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")
SMALL = {"hidden_units": 8, "num_layers": 1}
GAMMA = 0.5
MODEL = {"gamma": GAMMA, "strength": 0.5, "network_settings": {**SMALL, "normalize": True}}
CHOICES = BehaviorSpec(SPEC.observation_specs, ActionSpec(0, (2,)))
NUMBERS = BehaviorSpec(SPEC.observation_specs, ActionSpec(1, ()))


def settings_of(trainer_type: str, signals: dict[str, Any], **hyper: Any) -> TrainerSettings:
    group = {"group_size": GROUP} if HYPERPARAMETERS[trainer_type].learns_by_group else {}
    return TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {"batch_size": 4, "buffer_size": 100, **group, **hyper},
            "network_settings": SMALL,
            "reward_signals": signals,
            "max_steps": 10**6,
        }
    )


def met(
    trainer_type: str, spec: BehaviorSpec, trajectories: Trajectories, **given: Any
) -> tuple[Any, np.ndarray]:
    """A learner that has recorded trajectories and whose reward model learned a little, and what it pays, [S]."""
    settings = settings_of(trainer_type, **given)
    shown = selector_for(spec, settings).spec
    learner: Any = ALGORITHMS[trainer_type](shown, settings, Compute(CPU, 1))
    steps, ends = len(trajectories), len(trajectories.lengths)
    added = [sensor.size for sensor in shown.observation_specs[1:]]
    actions = {} if spec is CHOICES else without_choices(trajectories)
    trajectories = replace(
        trajectories,
        observations=(*trajectories.observations, *(np.ones((steps, size), np.float32) for size in added)),
        final_observations=(
            *trajectories.final_observations,
            *(np.ones((ends, size), np.float32) for size in added),
        ),
        continuous_actions=trajectories.continuous_actions[:, : spec.action_spec.continuous_size],
        **actions,
    )
    learner.record(trajectories)
    own = replace(
        trajectories,
        observations=trajectories.observations[:1],
        final_observations=trajectories.final_observations[:1],
    )
    experience = Experience(own, CPU).take(slice(None))
    (source,) = learner.rewards.models
    for _ in range(3):
        source.learn(experience)
    paid = source.strength * source.rewards(experience).numpy()
    assert len(np.unique(paid)) > steps // 2
    return learner, paid


def without_choices(trajectories: Trajectories) -> dict[str, np.ndarray]:
    steps, ends = len(trajectories), len(trajectories.lengths)
    return {
        "discrete_actions": np.empty((steps, 0), np.int64),
        "allowed_actions": np.empty((steps, 0), np.bool_),
        "final_allowed_actions": np.empty((ends, 0), np.bool_),
    }


@pytest.mark.parametrize("signal", ["curiosity", "rnd"])
@pytest.mark.parametrize(("trainer_type", "spec"), [("dqn", CHOICES), ("td3", NUMBERS)])
def test_every_step_that_a_target_looks_at_pays_what_its_source_says(
    trainer_type: str, spec: BehaviorSpec, signal: str
) -> None:
    signals = {"extrinsic": {"gamma": GAMMA, "strength": 2.0}, signal: MODEL}
    learner, r = met(trainer_type, spec, lives([4, 1], [True, False]), signals=signals, n_step=3)
    sample = gathered(learner.replay.buffer, np.array([0, 2, 3, 4]))
    task = 2.0 * np.array([0 + 1 / 2 + 2 / 4, 2 + 3 / 2, 3, 4])
    learned = np.array([r[0] + r[1] / 2 + r[2] / 4, r[2] + r[3] / 2, r[3], r[4]])
    np.testing.assert_allclose(learner.minibatch(sample).rewards, task + learned, rtol=1e-5)
    told = learner.rewards.metrics()
    means = [(r[0] + r[1] + r[2]) / 3, (r[2] + r[3]) / 2, r[3], r[4]]
    assert told[f"Policy/{signal.capitalize()} Reward"] == pytest.approx(np.mean(means), rel=1e-5)
    assert told["Policy/Extrinsic Reward"] == pytest.approx(2.0 * np.mean([1, 2.5, 3, 4]))


def test_without_the_tasks_rewards_only_the_learned_ones_count() -> None:
    learner, r = met("dqn", CHOICES, lives([2], [True]), signals={"rnd": MODEL})
    sample = gathered(learner.replay.buffer, np.array([0, 1]))
    np.testing.assert_allclose(learner.minibatch(sample).rewards, r, rtol=1e-5)
    assert learner.minibatch(sample).discounts == GAMMA


@pytest.mark.parametrize(
    ("trainer_type", "mode"),
    [
        ("idqn", "individual"),
        ("maddpg", "individual"),
        ("sic", "individual"),
        ("idqn", "team_sum"),
        ("vdn", "team_sum"),
    ],
)
def test_members_of_a_group_earn_what_their_own_steps_pay(trainer_type: str, mode: str) -> None:
    signals = {"extrinsic": {"gamma": GAMMA}, "curiosity": MODEL}
    learner, r = met(trainer_type, CHOICES, lives_of_group(), signals=signals, n_step=2, reward_mode=mode)
    sample = gathered(learner.replay.buffer, np.arange(4))
    batch = learner.minibatch(sample)
    paid = np.array(
        [[r[0] + r[1] / 2, r[4]], [r[1] + r[2] / 2, 0.0], [r[2] + r[3] / 2, r[5] + r[6] / 2], [r[3], r[6]]]
    )
    if mode == "individual":
        np.testing.assert_allclose(batch.rewards.numpy() - sample.rewards, paid, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(batch.summed_rewards, sample.summed_rewards)
    else:
        paid[1, 1] = r[5] / 2  # who comes in the meantime counts for the team
        np.testing.assert_allclose(
            batch.summed_rewards.numpy() - sample.summed_rewards, paid.sum(axis=1), rtol=1e-4, atol=1e-5
        )


def behavior_of(spec: BehaviorSpec, settings: TrainerSettings, seed: int) -> Behavior:
    behavior = Behavior("Probe", spec, settings, Compute(CPU, seed))
    behavior.prepare()
    return behavior


@pytest.mark.parametrize(
    ("trainer_type", "hyper"),
    [
        ("dqn", {"replay": {"type": "prioritized"}, "target_update": 3, "n_step": 2}),
        ("td3", {"policy_delay": 2, "buffer_init_steps": 0}),
        ("maddpg", {}),
    ],
)
def test_rewards_of_no_strength_change_no_number(trainer_type: str, hyper: dict[str, Any]) -> None:
    actions = ActionSpec(2, ()) if trainer_type == "td3" else ActionSpec(0, (3,))
    spec = BehaviorSpec((ObservationSpec("seen", (SENSOR,)),), actions)
    models = {"curiosity": {"strength": 0.0}, "rnd": {"strength": 0.0, "normalize_rewards": True}}
    found = []
    for signals in ({"extrinsic": {}}, {"extrinsic": {}, **models}):
        settings = settings_of(
            trainer_type, signals, steps_per_update=8, reward_signal_steps_per_update=5, **hyper
        )
        behavior = behavior_of(spec, settings, seed=3)
        world = ShortEpisodes(actions)
        run_ticks(behavior, *begin_world(behavior, world), 12 * DECISIONS)
        found.append(state(behavior))
    plain, with_models = found
    assert with_models["/reward_updates"] > plain["/updates"] > 5
    for name, value in plain.items():
        if name.startswith(("/signals", "/reward_updates", "/cloning")):
            continue
        other = with_models[name]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name
