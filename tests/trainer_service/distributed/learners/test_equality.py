"""Two learner ranks, each a process: equal to each other bit for bit, and to one learner up to the order of sums."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import flat
from shown_episodes import Shown, write_episodes

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners.group import LearnerGroup, open_meeting
from trainer_service.distributed.learners.ranks import LearnerRanks
from trainer_service.learning.algorithms.common.learner import Compute, Learner
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.process

CPU = torch.device("cpu")
REPOSITORY = Path(__file__).parents[4]
UPDATES = 8  # one more than the longest period of a case, consensus_every
GROUPS, AGENTS = 5, 3
SPEC = BehaviorSpec((ObservationSpec("seen", (3,)),), ActionSpec(2, (3, 2)))
NUMBERS = BehaviorSpec(SPEC.observation_specs, ActionSpec(2, ()))
CHOICES = BehaviorSpec(SPEC.observation_specs, ActionSpec(0, (3,)))
BRANCHES = BehaviorSpec(SPEC.observation_specs, ActionSpec(0, (3, 2)))

# Rows of a minibatch, and of a rollout, are no multiple of the ranks.
ROLLOUTS = {"batch_size": 33, "buffer_size": 60, "num_epoch": 2, "learning_rate": 0.003}
REPLAY = {
    "batch_size": 33,
    "buffer_size": 400,
    "buffer_init_steps": 60,
    "steps_per_update": 15,
    "learning_rate": 0.003,
}
NORMALIZED = {"hidden_units": 8, "num_layers": 1, "normalize": True}
MEMORY = {**NORMALIZED, "memory": {"memory_size": 6, "sequence_length": 4}}
TEAM = {"group_size": AGENTS}
ADAPTIVE = {"learning_rate_schedule": "adaptive", "desired_kl": 0.004, "target_kl": 0.004, "num_epoch": 4}
PRIORITIES = {"replay": {"type": "prioritized"}}
DEMO = "shown.demo"
CURIOSITY = {"gamma": 0.9, "strength": 0.1, "network_settings": {"hidden_units": 8, "num_layers": 1}}


Case = tuple[BehaviorSpec, dict[str, Any]]
"""What a learner's agents see and do, and its settings."""


def on_policy(trainer_type: str, spec: BehaviorSpec = SPEC, **changes: Any) -> Case:
    return case(trainer_type, spec, ROLLOUTS, **changes)


def off_policy(trainer_type: str, spec: BehaviorSpec, **changes: Any) -> Case:
    return case(trainer_type, spec, REPLAY, **changes)


def case(
    trainer_type: str,
    spec: BehaviorSpec,
    sizes: Mapping[str, Any],
    *,
    network: Mapping[str, Any] = NORMALIZED,
    rewards: Mapping[str, Any] | None = None,
    cloning: Mapping[str, Any] | None = None,
    **hyperparameters: Any,
) -> Case:
    return spec, {
        "trainer_type": trainer_type,
        "hyperparameters": {**sizes, **hyperparameters},
        "network_settings": network,
        "reward_signals": {"extrinsic": {"gamma": 0.9, "strength": 1.0}, **(rewards or {})},
        "behavioral_cloning": cloning,
        "max_steps": 10**6,
        "time_horizon": 8,
    }


CASES = {
    "ppo": on_policy("ppo"),
    "ppo-memory": on_policy("ppo", network=MEMORY),
    "ppo-adaptive": on_policy("ppo", **ADAPTIVE),
    "ppo-curiosity": on_policy("ppo", rewards={"curiosity": CURIOSITY}),
    "ppo-normalized": on_policy(
        "ppo",
        weight_decay=0.01,
        learning_rate_schedule="exponential",
        rewards={"extrinsic": {"gamma": 0.9, "normalize_rewards": True}},
    ),
    "ppo-gail-cloning": on_policy(
        "ppo",
        rewards={"gail": {**CURIOSITY, "demo_path": DEMO, "use_vail": True, "use_actions": True}},
        cloning={"demo_path": DEMO, "strength": 0.5, "steps": 10**6, "samples_per_update": 50},
    ),
    "mappo": on_policy("mappo", **TEAM),
    "mappo-memory": on_policy("mappo", network=MEMORY, value_normalization="popart", **TEAM),
    "happo": on_policy("happo", reward_mode="team_sum", **TEAM),
    "poca": on_policy("poca", **TEAM),
    "coma": case("coma", CHOICES, {"batch_size": 33, "buffer_size": 60, "learning_rate": 0.003}, **TEAM),
    "sac": off_policy("sac", SPEC),
    "sac-memory": off_policy("sac", BRANCHES, network=MEMORY, **PRIORITIES),
    "dqn-curiosity": off_policy("dqn", BRANCHES, n_step=3, rewards={"curiosity": CURIOSITY}, **PRIORITIES),
    "td3-memory": off_policy("td3", NUMBERS, network=MEMORY, n_step=2, **PRIORITIES),
    "vdn-curiosity": off_policy("vdn", CHOICES, n_step=2, rewards={"curiosity": CURIOSITY}, **TEAM),
    "qmix-memory-curiosity": off_policy(
        "qmix", CHOICES, n_step=2, network=MEMORY, rewards={"curiosity": CURIOSITY}, **PRIORITIES, **TEAM
    ),
    "dqn_consensus": off_policy("dqn_consensus", CHOICES, consensus_every=7, **TEAM),
    "sic": off_policy("sic", CHOICES, **TEAM),
    "maddpg-memory": off_policy("maddpg", SPEC, network=MEMORY, **TEAM),
}
IN_CI = ("ppo", "ppo-memory", "ppo-gail-cloning", "mappo", "sac", "vdn-curiosity")


class Strolls:
    """Groups whose agents see noise and are paid at random, for seven ticks; the last agent leaves earlier."""

    def __init__(self, spec: BehaviorSpec) -> None:
        self.rng = np.random.default_rng(3)
        self.actions = spec.action_spec
        self.ids = np.arange(GROUPS * AGENTS)
        self.time = 0

    def begin(self) -> StepBatch:
        return self.rows(self.ids, np.zeros(len(self.ids)))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        episode, phase = np.divmod(self.time + self.ids // AGENTS, 7)
        leaving = (self.ids % AGENTS == AGENTS - 1) & (episode > 0)
        gone = leaving & (phase >= 4)
        ended = np.where(
            leaving, phase == 4, (phase == 0) & ~((self.ids % AGENTS == AGENTS - 1) & (episode > 1))
        )
        paid = self.rng.normal(size=len(self.ids))
        deciding = self.rows(self.ids[~gone], paid)
        if not ended.any():
            return deciding
        return concatenate(self.rows(self.ids[ended], paid, terminated=self.ids[ended] % 2 == 0), deciding)

    def rows(self, ids: np.ndarray, paid: np.ndarray, terminated: np.ndarray | None = None) -> StepBatch:
        ends = {} if terminated is None else {"terminated": terminated, "truncated": ~terminated}
        return step_batch(
            [self.rng.normal(size=(len(ids), 3)).astype(np.float32)],
            paid[ids].astype(np.float32),
            agent_ids=ids,
            allowed_actions=np.ones((len(ids), self.actions.mask_size), np.bool_),
            group_ids=1 + ids // AGENTS,
            group_rewards=np.ones(len(ids), np.float32),
            **ends,
        )


@dataclass(frozen=True)
class Result:
    """States after all updates, by path, and the metrics of the last one."""

    alone: dict[str, Any]
    of_ranks: tuple[dict[str, Any], dict[str, Any]]
    """Of rank 0 and of rank 1."""

    metrics_alone: Mapping[str, float]
    metrics: Mapping[str, float]


def write_demonstration(spec: BehaviorSpec) -> None:
    """Some episodes of chance."""
    rng, actions, episodes = np.random.default_rng(5), spec.action_spec, []
    for steps in (9, 4, 12):
        seen = rng.normal(size=(steps + 1, 3)).astype(np.float32)
        numbers = rng.uniform(-1, 1, (steps, actions.continuous_size))
        choices = rng.integers(0, actions.discrete_branches, (steps, actions.discrete_size))
        episodes.append(Shown([seen], numbers, choices))
    write_episodes(Path(DEMO), spec, *episodes)


def learn_beside(behavior: Behavior, twin: Learner, updates: int) -> tuple[Mapping[str, float], ...]:
    """Lets a behavior live and learn, and a twin of its learner take in the same. Returns both's last metrics."""
    learner = behavior.learner
    world = Strolls(behavior.spec)
    batch = world.begin()
    metrics: tuple[Mapping[str, float], ...] = ()
    while updates:
        observed = behavior.collector.observe(BehaviorTick(0, 0, batch))
        if observed.trajectories is not None:
            learner.record(observed.trajectories)
            twin.record(observed.trajectories)
        if learner.ready():
            assert twin.ready()
            metrics = (learner.update(0), twin.update(0))
            updates -= 1
        batch = world.step(behavior.collector.act()[0])
    return metrics


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder of both ranks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("ranks"))
        yield Path.cwd()


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, folder: Path) -> dict[str, Result]:
    """The results of all cases that this session tests, from the same two ranks."""
    names = [name for name in CASES if any(name == _case_of(item) for item in request.session.items)]
    meeting, store = open_meeting(2, CPU)
    program = REPOSITORY / "tests" / "programs" / "learner_rank.py"
    process = subprocess.Popen([sys.executable, program, folder / "1.pt"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"rank": 1, **asdict(meeting)}).encode() + b"\n")
    process.stdin.flush()
    found = []
    with LearnerRanks(LearnerGroup(meeting, store, 0), [process]) as ranks:
        for name in names:
            spec, settings = CASES[name]
            if settings["behavioral_cloning"] is not None:
                write_demonstration(spec)
            behavior = Behavior(name, spec, TrainerSettings.model_validate(settings), Compute(CPU, 7))
            twin = ranks.make(name, behavior.collector.selector.spec, behavior.settings, Compute(CPU, 7))
            behavior.prepare()
            twin.prepare(0)
            metrics = learn_beside(behavior, twin, UPDATES)
            found.append((flat(behavior.learner.state_dict()), flat(twin.state_dict()), *metrics))
        ranks.group.send({"what": "end"})
        process.wait(60.0)  # it writes what it has learned, which ranks do not
    assert process.returncode == 0
    others = [flat(state) for state in torch.load(folder / "1.pt", weights_only=True)]
    return {
        name: Result(alone, (first, second), before, after)
        for name, (alone, first, before, after), second in zip(names, found, others, strict=True)
    }


def _case_of(item: pytest.Item) -> str | None:
    """The case that a test of this file looks at."""
    return (
        item.callspec.params.get("name")
        if item.path == Path(__file__) and hasattr(item, "callspec")
        else None
    )


cases = pytest.mark.parametrize(
    "name", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.thorough) for name in CASES]
)


@cases
def test_ranks_are_equal_bit_for_bit(results: dict[str, Result], name: str) -> None:
    first, second = results[name].of_ranks
    assert first.keys() == second.keys()
    for path, value in first.items():
        if path != "/acting":  # only rank 0 acts
            same = torch.equal(value, second[path]) if torch.is_tensor(value) else value == second[path]
            assert same, path


@cases
def test_two_ranks_equal_one(results: dict[str, Result], name: str) -> None:
    result = results[name]
    for path, value in result.alone.items():
        if path != "/acting" and torch.is_tensor(value):
            torch.testing.assert_close(value, result.of_ranks[0][path], rtol=1e-5, atol=1e-5, msg=path)
    assert result.metrics == pytest.approx(dict(result.metrics_alone), rel=1e-3, abs=1e-4)
