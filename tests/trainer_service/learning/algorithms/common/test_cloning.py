"""Behavioral cloning with every trainer type that has it: what is learned, how much at a time, and what is saved."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import begin_world, run_ticks
from short_episodes import DECISIONS, GROUP, ShortEpisodes

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.router import EnvSteps
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

VECTOR = ObservationSpec("vector", (3,))
CHOICES, NUMBERS, BOTH = ActionSpec(0, (3, 2)), ActionSpec(1, ()), ActionSpec(1, (2,))
CASES = {
    "ppo": ("ppo", BOTH, {}),
    "sac": ("sac", BOTH, {}),
    "dqn": ("dqn", CHOICES, {"dueling": True}),
    "ddpg": ("ddpg", NUMBERS, {}),
    "td3": ("td3", NUMBERS, {}),
    "idqn": ("idqn", CHOICES, {}),
    "vdn-ids": ("vdn", CHOICES, {"share": "full", "agent_ids": True}),
    "qmix-shared": ("qmix", CHOICES, {"share": "full"}),
    "maddpg-ids": ("maddpg", BOTH, {"share": "full", "agent_ids": True}),
    "mappo": ("mappo", BOTH, {}),
    "happo": ("happo", BOTH, {}),
    "poca-alone": ("poca", BOTH, {"share": "none"}),
    "coma-ids": ("coma", ActionSpec(0, (3,)), {}),
}
"""Trainer type, actions and hyperparameters. Those of groups have actors of one each, or ids, or neither."""


def make(
    case: str, demo: Path, *, memory: bool = False, seed: int = 1, rows: int = 64, **cloning: Any
) -> Behavior:
    """rows: of a minibatch. cloning: its settings."""
    trainer_type, actions, hyper = CASES[case]
    group = {"group_size": GROUP} if HYPERPARAMETERS[trainer_type].learns_by_group else {}
    remembers = {"memory_size": 16, "sequence_length": 4} if memory else None
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {"batch_size": rows, "learning_rate": 3e-3, **group, **hyper},
            "network_settings": {"hidden_units": 32, "num_layers": 1, "memory": remembers},
            "behavioral_cloning": {"demo_path": str(demo), **cloning},
            "max_steps": 10**6,
        }
    )
    behavior = Behavior(
        "Probe", BehaviorSpec((VECTOR,), actions), settings, Compute(torch.device("cpu"), seed)
    )
    behavior.prepare()
    return behavior


def cloned(behavior: Behavior, times: int) -> float:
    """Clones so many times. Returns the last loss."""
    learner: Any = behavior.learner
    found = {}
    for _ in range(times):
        found = learner.cloning.update(0)
    return float(found["Losses/Pretraining Loss"])


def rule(seen: np.ndarray, actions: ActionSpec) -> tuple[np.ndarray, np.ndarray]:
    """What the expert does: numbers, and choices."""
    numbers = 0.6 * np.tanh(seen[:, 1:2])
    choices = [
        np.digitize(seen[:, 0], [-0.5, 0.5])[:, None] if size == 3 else seen[:, :1] > 0
        for size in actions.discrete_branches
    ]
    none = np.zeros((len(seen), 0))
    return (
        numbers if actions.continuous_size else none,
        np.concatenate(choices, axis=1) if choices else none,
    )


@pytest.fixture
def demo_of(write_demo, shown):
    def write(actions: ActionSpec, steps: int = 128) -> Path:
        seen = np.random.default_rng(3).uniform(-1.5, 1.5, (steps + 1, 3)).astype(np.float32)
        path: Path = write_demo(BehaviorSpec((VECTOR,), actions), shown([seen], *rule(seen[:-1], actions)))
        return path

    return write


@pytest.mark.parametrize("case", CASES)
def test_cloning_alone_does_what_was_demonstrated(demo_of, case: str) -> None:
    actions = CASES[case][1]
    behavior = make(case, demo_of(actions), strength=3.0)
    first = cloned(behavior, 1)
    assert cloned(behavior, 35) < 0.5 * first
    policy = Policy(checkpoint_of(behavior))
    seen = np.random.default_rng(4).uniform(-1.5, 1.5, (100, 3)).astype(np.float32)
    numbers, choices = rule(seen, actions)
    for agent in range(max(policy.num_agents, 1)):  # whoever of the group it is
        ids = {"agent_indices": np.full(100, agent)} if policy.num_agents else {}
        done = policy.act([seen], **ids)
        assert (done.discrete == choices).mean() > 0.9 if choices.size else True
        assert np.abs(done.continuous - numbers).mean() < 0.1 if numbers.size else True


@pytest.mark.parametrize("case", ["ppo", "sac", "dqn", "maddpg-ids", "happo"])
def test_what_was_seen_long_ago_is_cloned_with_memory(write_demo, shown, case: str) -> None:
    # A cue is seen at the first step alone and answered to the end, in sequences of which the second holds no cue.
    actions, shows = CASES[case][1], []
    for number in range(12):
        seen = np.zeros((7, 3), np.float32)
        seen[0, number % 2] = 1.0
        numbers = np.full((6, actions.continuous_size), 0.5 - number % 2)
        choices = np.full((6, actions.discrete_size), number % 2)
        shows.append(shown([seen], numbers, choices))
    demo = write_demo(BehaviorSpec((VECTOR,), actions), *shows)
    losses = [
        cloned(make(case, demo, memory=memory, strength=3.0, batch_size=256), 40) for memory in (True, False)
    ]
    assert losses[0] < 0.4 * losses[1]


@pytest.mark.parametrize("case", ["dqn", "mappo"])
def test_its_own_steps_are_agent_steps_wherever_environment_steps_place_the_run(
    demo_of, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    trainer_type, actions, _ = CASES[case]
    settings = make(case, demo_of(actions), steps=10**4).settings
    of_replay = {"buffer_init_steps": 0}
    sizes = of_replay if HYPERPARAMETERS[trainer_type].learns_from_replay else {"buffer_size": 48}
    settings = settings.model_copy(
        update={"hyperparameters": settings.hyperparameters.model_copy(update=sizes)}
    )
    spec = BehaviorSpec((VECTOR,), actions)
    behavior = Behavior("Probe", spec, settings, Compute(torch.device("cpu"), 1))
    behavior.prepare()
    behavior.env_steps = EnvSteps(budget=100, taken=50)
    learner: Any = behavior.learner
    places: list[int] = []

    def update(step: int) -> dict[str, float]:
        places.append(step)
        assert learner.schedule_lead == 500_000 - behavior.step
        return {}

    monkeypatch.setattr(learner.cloning, "update", update)
    run_ticks(behavior, *begin_world(behavior, ShortEpisodes(actions)), 8 * DECISIONS)
    assert places
    assert 0 < max(places) <= behavior.step < 200


def test_memories_are_renewed_after_each_pass_over_the_demonstrations(demo_of) -> None:
    # Each update learns from half of the steps.
    demo = demo_of(BOTH, steps=40)
    learner: Any = make("ppo", demo, memory=True, num_epoch=1, samples_per_update=20).learner
    noted = []
    for _ in range(5):
        learner.cloning.update(0)
        noted.append(learner.cloning.state_dict()["memories"])
    kept = [torch.equal(memories, following) for memories, following in pairwise(noted)]
    assert kept == [True, False, True, False]


def gradient_steps(
    behavior: Behavior, monkeypatch: pytest.MonkeyPatch, step: int = 0
) -> list[tuple[int, float]]:
    """Rows and learning rate of every gradient step of one update."""
    learner: Any = behavior.learner
    made, learn = [], learner.cloning._learn

    def spy(demonstrations: Any, sequences: Any, chosen: np.ndarray, rate: float) -> torch.Tensor:
        made.append((len(chosen), rate))
        learned: torch.Tensor = learn(demonstrations, sequences, chosen, rate)
        return learned

    monkeypatch.setattr(learner.cloning, "_learn", spy)
    learner.cloning.update(step)
    return made


@pytest.fixture
def small_demo(demo_of) -> Path:
    """40 steps of numbers and choices."""
    path: Path = demo_of(BOTH, steps=40)
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
    small_demo: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], rows: list[int]
) -> None:
    behavior = make("ppo", small_demo, rows=16, **settings)
    assert [count for count, _ in gradient_steps(behavior, monkeypatch)] == rows


@pytest.mark.parametrize(
    ("settings", "step", "rate"),
    [({}, 10**9, 3e-3), ({"strength": 0.5, "steps": 1000}, 250, 1.125e-3), ({"steps": 1000}, 999, 3e-6)],
)
def test_the_learning_rate_of_cloning_falls_to_zero(
    small_demo: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], step: int, rate: float
) -> None:
    used = {made for _, made in gradient_steps(make("ppo", small_demo, **settings), monkeypatch, step)}
    assert list(used) == [pytest.approx(rate, rel=1e-3)]


@pytest.mark.parametrize("settings", [{"steps": 1000}, {"strength": 0.0}], ids=["over", "weightless"])
def test_finished_cloning_changes_no_weights(small_demo: Path, settings: dict[str, Any]) -> None:
    learner: Any = make("ppo", small_demo, **settings).learner
    before = learner.optimizers["optimizer"].parameters.vector.clone()
    assert learner.cloning.update(1000) == {}
    assert torch.equal(learner.optimizers["optimizer"].parameters.vector, before)


def test_cloning_does_not_change_the_critic(small_demo: Path) -> None:
    behavior = make("ppo", small_demo)
    network = behavior.learner.actor.network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    cloned(behavior, 2)
    after = network.state_dict()
    moved = {name.partition(".")[0] for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved == {"actor", "actions"}


@pytest.mark.parametrize("case", ["ppo", "sac"])
@pytest.mark.parametrize("memory", [False, True], ids=["plain", "memory"])
def test_cloning_resumes_bit_for_bit(small_demo: Path, case: str, memory: bool) -> None:
    settings = {"memory": memory, "samples_per_update": 24}
    straight, resumed = (make(case, small_demo, seed=seed, **settings) for seed in (1, 99))
    cloned(straight, 3)
    resumed.learner.load_state_dict(straight.learner.state_dict())
    assert cloned(straight, 3) == cloned(resumed, 3)


def test_cloning_can_begin_from_a_checkpoint_without_it(small_demo: Path) -> None:
    behavior = make("ppo", small_demo)
    behavior.learner.load_state_dict({**make("ppo", small_demo).learner.state_dict(), "cloning": None})
    assert cloned(behavior, 1) > 0.0


def test_a_policy_with_memory_resumes_with_more_demonstrations(demo_of) -> None:
    before = make("ppo", demo_of(BOTH, steps=30), memory=True, samples_per_update=8)
    cloned(before, 1)
    behavior = make("ppo", demo_of(BOTH, steps=80), memory=True, samples_per_update=8)
    behavior.learner.load_state_dict(before.learner.state_dict())
    assert cloned(behavior, 10) > 0.0
