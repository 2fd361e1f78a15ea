"""Learners that imitate, in behaviors: where demonstrations are read, what is reported, and what is saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from behavior_worlds import OneDecision

from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 8
SMALL_NETWORK = {"hidden_units": 16, "num_layers": 1}
SPEC = BehaviorSpec((ObservationSpec("sensor_0", (2,)),), ActionSpec(1, (3,)))

learners = pytest.mark.parametrize("trainer", ["ppo", "sac"])
TUNING: dict[str, dict[str, Any]] = {
    "ppo": {"batch_size": 32, "buffer_size": 128},
    "sac": {"batch_size": 32, "buffer_size": 1000, "steps_per_update": 8, "save_replay_buffer": True},
}


class Toss(OneDecision):
    """Sees what the expert saw, allows all choices, and remembers the numbers that it was given."""

    def __init__(self) -> None:
        super().__init__(AGENTS)
        self.executed: list[np.ndarray] = []

    def begin(self) -> StepBatch:
        self.seen = self.rng.normal(size=(AGENTS, 2)).astype(np.float32)
        return self.rows(np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.executed.append(actions.continuous.copy())
        return super().step(actions)

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        batch = super().rows(rewards, **ends)
        return replace(batch, allowed_actions=np.ones_like(batch.allowed_actions))


@pytest.fixture
def demo(write_demo, shown) -> Path:
    """Episodes of one step. An expert says 0.4, and always the same choice."""
    rng = np.random.default_rng(5)
    episodes = [
        shown([rng.normal(size=(2, 2)).astype(np.float32)], np.full((1, 1), 0.4), np.full((1, 1), 2))
        for _ in range(64)
    ]
    path: Path = write_demo(SPEC, *episodes)
    return path


@pytest.fixture
def make(make_behavior, demo):
    """A hybrid behavior that imitates the expert; keywords replace its settings."""

    def build(
        trainer: str, *, seed: int = 1, learns: bool = True, path: Path = demo, **changes: Any
    ) -> Behavior:
        gail = {"demo_path": str(path), "use_actions": True, "network_settings": SMALL_NETWORK}
        made: Behavior = make_behavior(
            sizes=(2,),
            continuous=1,
            branches=(3,),
            seed=seed,
            learns=learns,
            **{
                "trainer_type": trainer,
                "hyperparameters": TUNING[trainer],
                "network_settings": SMALL_NETWORK,
                "reward_signals": {"extrinsic": {}, "gail": gail},
                "behavioral_cloning": {"demo_path": str(path), "samples_per_update": 32},
                "max_steps": 100_000,
                **changes,
            },
        )
        return made

    return build


@learners
def test_imitators_report_under_ml_agents_tags(make, live, trainer: str) -> None:
    behavior = make(trainer)
    live(behavior, Toss(), 3)
    metrics = {tag: series.value for tag, series in behavior.summarize(0.0).series.items()}
    value = "Policy/Gail Value Estimate" if trainer == "ppo" else "Policy/Gail Value"
    assert metrics.keys() >= {
        "Losses/GAIL Loss",
        "Losses/Pretraining Loss",
        "Policy/GAIL Expert Estimate",
        "Policy/GAIL Grad Mag Loss",
        "Policy/GAIL Policy Estimate",
        "Policy/Gail Reward",
        value,
    }
    assert metrics["Policy/Gail Reward"] > 0.0


def test_the_discriminator_sees_what_the_simulator_got(make, live, monkeypatch: pytest.MonkeyPatch) -> None:
    behavior, world = make("ppo"), Toss()
    source = behavior.learner.rewards[1]
    record, seen = source.record, []

    def spy(experience: Any) -> np.ndarray:
        seen.append(experience.take(slice(None)))
        paid: np.ndarray = record(experience)
        return paid

    monkeypatch.setattr(source, "record", spy)
    live(behavior, world, 1)
    got = np.sort(np.concatenate(world.executed[:16])[:, 0])
    assert np.sort(seen[0].executed_actions[:, 0].numpy()) == pytest.approx(got)
    assert np.abs(seen[0].continuous_actions.numpy()).max() > 1.0
    assert seen[0].terminated.all()


@learners
@pytest.mark.probe
def test_imitation_alone_reproduces_the_expert(make, live, trainer: str) -> None:
    # Seen by the discriminator alone, without cloning; the policy starts from 0 and all choices alike.
    demo_path = make(trainer).settings.reward_signals["gail"].demo_path
    gail = {
        "demo_path": demo_path,
        "use_actions": True,
        "gamma": 0.5,
        "learning_rate": 3e-3,
        "network_settings": SMALL_NETWORK,
    }
    behavior = make(
        trainer,
        reward_signals={"gail": gail},
        behavioral_cloning=None,
        hyperparameters={**TUNING[trainer], "learning_rate": 3e-3, "learning_rate_schedule": "constant"},
    )
    live(behavior, Toss(), 50 if trainer == "ppo" else 250)
    seen = np.random.default_rng(9).normal(size=(64, 2)).astype(np.float32)
    done = Policy(checkpoint_of(behavior)).act([seen])
    assert (done.discrete == 2).mean() > 0.9
    assert 0.2 < done.continuous.mean() < 0.7


def test_inference_needs_no_recording(make, live, demo: Path) -> None:
    trained = make("ppo")
    live(trained, Toss(), 2)
    demo.unlink()
    acting = make("ppo", learns=False)
    restore(acting, checkpoint_of(trained))
    seen = np.ones((3, 2), np.float32)
    ours, theirs = (Policy(checkpoint_of(each)).act([seen]) for each in (trained, acting))
    assert np.array_equal(ours.continuous, theirs.continuous)
    acting.prepare()
    with pytest.raises(UserError, match=r"expert\.demo"):
        make("ppo").prepare()
