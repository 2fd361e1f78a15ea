"""Behavioral cloning by both learners, seen from outside: what the simulator gets is what was demonstrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.algorithms.common.cloning import BehavioralCloning
from trainer_service.learning.algorithms.off_policy.sac import SAC
from trainer_service.learning.algorithms.on_policy.ppo import PPO
from unity_bridge import specs
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec
from unity_bridge.steps import ActionBatch

VECTOR = ObservationSpec("vector", (2,))
PICTURE = ObservationSpec("picture", (3, 20, 20), specs.PICTURE)
ENTITIES = ObservationSpec("entities", (4, 5), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE))
NUMBERS, CHOICES, BOTH = ActionSpec(2, ()), ActionSpec(0, (3, 2)), ActionSpec(1, (2,))

Learner = PPO | SAC
learners = pytest.mark.parametrize("trainer", ["ppo", "sac"])


def make(
    trainer: str, spec: BehaviorSpec, demo: Path, *, seed: int = 1, memory: Any = None, **cloning: Any
) -> Learner:
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": trainer,
            "hyperparameters": {"batch_size": 16, "learning_rate": 3e-3},
            "network_settings": {"hidden_units": 32, "num_layers": 1, "memory": memory},
            "behavioral_cloning": {"demo_path": str(demo), **cloning},
        }
    )
    learner = ALGORITHMS[trainer](spec, settings, Compute(torch.device("cpu"), seed))
    assert isinstance(learner, PPO | SAC)
    return learner


def cloning_of(learner: Learner) -> BehavioralCloning:
    assert learner.cloning is not None
    return learner.cloning


def clone(learner: Learner, times: int, step: int = 0) -> float:
    metrics: dict[str, float] = {}
    for _ in range(times):
        metrics = dict(cloning_of(learner).update(step))
    return metrics["Losses/Pretraining Loss"]


def acts(learner: Learner, *observations: np.ndarray) -> ActionBatch:
    """Likeliest actions as the simulator gets them."""
    network = learner.actor.policy_network()
    with torch.no_grad():
        seen = [torch.from_numpy(sensor.astype(np.float32)) for sensor in observations]
        parameters = network(seen)
        continuous = network.squash(parameters.mean)
    branches = network.network.actions.branches
    parts = torch.split(parameters.logits, list(branches), dim=1) if branches else ()
    chosen = [part.argmax(dim=1) for part in parts]
    discrete = torch.stack(chosen, dim=1) if chosen else torch.empty((len(continuous), 0))
    return ActionBatch(continuous.numpy(), discrete.numpy().astype(np.int32))


@pytest.mark.parametrize(
    ("trainer", "sensor"), [("ppo", PICTURE), ("sac", ENTITIES)], ids=["pictures", "entities"]
)
def test_pictures_and_entities_can_be_cloned_from(
    write_demo, shown, trainer: str, sensor: ObservationSpec
) -> None:
    spec = BehaviorSpec((sensor,), BOTH)
    rng = np.random.default_rng(1)
    sides = rng.integers(0, 2, 33)
    where = sides.reshape(-1, *[1] * len(sensor.shape))
    seen = np.broadcast_to(where, (33, *sensor.shape)).astype(np.float32)
    if sensor.is_picture:
        seen = (255 * seen).astype(np.uint8)
    demo = write_demo(spec, shown([seen], 0.8 * sides[:32, None] - 0.4, sides[:32, None]))
    learner = make(trainer, spec, demo, num_epoch=1, strength=0.3 if sensor.is_picture else 1.0)
    clone(learner, 40)
    done = acts(learner, np.asarray(seen[:32], np.float32) / (255.0 if sensor.is_picture else 1.0))
    assert (done.discrete[:, 0] == sides[:32]).all()
    left, right = (done.continuous[sides[:32] == side, 0].mean() for side in (0, 1))
    assert left < -0.2
    assert right > 0.2


def test_a_sequence_starts_from_what_the_policy_would_remember_there(write_demo, shown) -> None:
    spec = BehaviorSpec((VECTOR,), ActionSpec(0, (2,)))
    rng = np.random.default_rng(1)
    seen = [rng.normal(size=(steps + 1, 2)).astype(np.float32) for steps in (7, 2, 5)]
    demo = write_demo(spec, *(shown([each], None, np.zeros((len(each) - 1, 1))) for each in seen))
    learner = make("ppo", spec, demo, memory={"memory_size": 8, "sequence_length": 3})
    cloning = cloning_of(learner)
    noted = cloning._recompute_memories(cloning.demonstrations.read(), 6)
    assert not noted[[0, 3, 4]].any()
    trunk = learner.actor.network.actor
    for episode, first, numbers in ((0, 0, (1, 2)), (2, 4, (5,))):
        memories = torch.zeros((1, 8))
        for at in range(3 * len(numbers)):
            with torch.no_grad():
                _, memories = trunk.step([torch.from_numpy(seen[episode][at : at + 1])], memories)
            if at % 3 == 2:
                assert noted[first + at // 3 + 1].tolist() == pytest.approx(memories[0].tolist(), abs=1e-6)


def losses_of(learner: Learner, monkeypatch: pytest.MonkeyPatch, step: int = 0) -> list[tuple[int, float]]:
    """Rows and learning rate of every gradient step of one update."""
    cloning, made = cloning_of(learner), []
    learn = cloning._learn

    def spy(demonstrations: Any, sequences: Any, chosen: np.ndarray, rate: float) -> torch.Tensor:
        made.append((len(chosen), rate))
        return learn(demonstrations, sequences, chosen, rate)

    monkeypatch.setattr(cloning, "_learn", spy)
    cloning.update(step)
    return made


@pytest.fixture
def demo(write_demo, shown) -> Path:
    """40 steps."""
    spec = BehaviorSpec((VECTOR,), BOTH)
    rng = np.random.default_rng(3)
    seen = rng.normal(size=(41, 2)).astype(np.float32)
    path: Path = write_demo(spec, shown([seen], rng.uniform(-1, 1, (40, 1)), rng.integers(0, 2, (40, 1))))
    return path


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, [16, 16, 8] * 3),
        ({"num_epoch": 2, "batch_size": 30}, [30, 10] * 2),
        ({"num_epoch": 2, "samples_per_update": 20}, [16, 4] * 2),
        ({"num_epoch": 1, "samples_per_update": 1000}, [16, 16, 8]),
    ],
)
def test_an_update_is_as_large_as_the_settings_say(
    demo: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], rows: list[int]
) -> None:
    learner = make("ppo", BehaviorSpec((VECTOR,), BOTH), demo, **settings)
    assert [count for count, _ in losses_of(learner, monkeypatch)] == rows


@pytest.mark.parametrize(
    ("settings", "step", "rate"),
    [({}, 10**9, 3e-3), ({"strength": 0.5, "steps": 1000}, 250, 1.125e-3), ({"steps": 1000}, 999, 3e-6)],
)
def test_the_learning_rate_of_cloning_falls_to_zero(
    demo: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], step: int, rate: float
) -> None:
    learner = make("ppo", BehaviorSpec((VECTOR,), BOTH), demo, **settings)
    used = {made for _, made in losses_of(learner, monkeypatch, step)}
    assert list(used) == [pytest.approx(rate, rel=1e-3)]


@pytest.mark.parametrize("settings", [{"steps": 1000}, {"strength": 0.0}], ids=["over", "weightless"])
def test_finished_cloning_changes_no_weights(demo: Path, settings: dict[str, Any]) -> None:
    learner = make("ppo", BehaviorSpec((VECTOR,), BOTH), demo, **settings)
    before = learner.optimizers["optimizer"].parameters.vector.clone()
    assert cloning_of(learner).update(1000) == {}
    assert torch.equal(learner.optimizers["optimizer"].parameters.vector, before)


def test_cloning_does_not_change_the_critic(demo: Path) -> None:
    learner = make("ppo", BehaviorSpec((VECTOR,), BOTH), demo)
    before = {name: value.clone() for name, value in learner.actor.network.state_dict().items()}
    clone(learner, 2)
    after = learner.actor.network.state_dict()
    moved = {name.partition(".")[0] for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == {"actor", "actions"}


@learners
@pytest.mark.parametrize("memory", [None, {"memory_size": 8, "sequence_length": 4}], ids=["plain", "memory"])
def test_cloning_resumes_bit_for_bit(demo: Path, trainer: str, memory: Any) -> None:
    spec = BehaviorSpec((VECTOR,), BOTH)
    settings = {"memory": memory, "samples_per_update": 24}
    straight = make(trainer, spec, demo, **settings)
    clone(straight, 3)
    resumed = make(trainer, spec, demo, seed=99, **settings)
    resumed.load_state_dict(straight.state_dict())
    losses = [clone(learner, 3) for learner in (straight, resumed)]
    assert losses[0] == losses[1]


def test_cloning_can_begin_from_a_checkpoint_without_it(demo: Path) -> None:
    spec = BehaviorSpec((VECTOR,), BOTH)
    learner = make("ppo", spec, demo)
    learner.load_state_dict({**make("ppo", spec, demo).state_dict(), "cloning": None})
    assert clone(learner, 1) > 0.0


def test_a_policy_with_memory_resumes_with_more_demonstrations(write_demo, shown) -> None:
    def demonstrated(steps: int) -> Path:
        seen = np.linspace(-1, 1, 2 * (steps + 1)).reshape(-1, 2).astype(np.float32)
        path: Path = write_demo(
            BehaviorSpec((VECTOR,), BOTH), shown([seen], np.zeros((steps, 1)), np.zeros((steps, 1)))
        )
        return path

    memory = {"memory_size": 8, "sequence_length": 4}
    spec = BehaviorSpec((VECTOR,), BOTH)
    before = make("ppo", spec, demonstrated(30), memory=memory, samples_per_update=8)
    clone(before, 1)
    learner = make("ppo", spec, demonstrated(80), memory=memory, samples_per_update=8)
    learner.load_state_dict(before.state_dict())
    assert clone(learner, 10) > 0.0
