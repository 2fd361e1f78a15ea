"""Tiny worlds for two, each with a known right answer, for every learner of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from pair_worlds import Clock, OwnCue, Pairs, Sacrifice, Table, differ
from seeds import quick_where

from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.observation_selection import with_group_size
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupNetworks, GroupQLearner
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

Make = Callable[..., Behavior]


class Kind(NamedTuple):
    """A learner's settings, and how long it takes to learn."""

    settings: dict[str, Any]
    updates: int
    copies: int = 16


ROLLOUTS = {
    "batch_size": 128,
    "buffer_size": 256,
    "learning_rate_schedule": "constant",
    "num_epoch": 4,
    "beta": 0.001,
}
COUNTERFACTUAL = {"trainer_type": "coma", "num_epoch": 1, "target_update": 10, "exploration_steps": 20000}
VALUES = {
    "batch_size": 32,
    "buffer_size": 2000,
    "steps_per_update": 16,
    "tau": 0.05,
    "exploration_steps": 2000,
}
REPLAY = {
    "trainer_type": "maddpg",
    "batch_size": 64,
    "buffer_size": 2000,
    "steps_per_update": 16,
    "tau": 0.05,
}
TEAM = {"reward_mode": "team_sum"}
LEARNERS = {
    "mappo": Kind({**ROLLOUTS, "trainer_type": "mappo"}, 40),
    "mappo-team": Kind({**ROLLOUTS, **TEAM, "trainer_type": "mappo"}, 40),
    "happo": Kind({**ROLLOUTS, **TEAM, "trainer_type": "happo"}, 40),
    "poca": Kind({**ROLLOUTS, "trainer_type": "poca"}, 40),
    "coma": Kind({**ROLLOUTS, **COUNTERFACTUAL}, 120),  # one pass of what others learn from four times
    "coma-scaled": Kind({**ROLLOUTS, **COUNTERFACTUAL, "value_normalization": "popart"}, 120),
    "idqn": Kind({**VALUES, "trainer_type": "idqn"}, 100),
    "vdn": Kind({**VALUES, "trainer_type": "vdn"}, 100),
    "qmix": Kind({**VALUES, "trainer_type": "qmix"}, 100),
    "maddpg": Kind(REPLAY, 250, 8),
    "maddpg-team": Kind({**REPLAY, **TEAM}, 250, 8),
    "maddpg-hard": Kind({**REPLAY, "hard_gumbel": True, "replay": {"type": "prioritized"}}, 350, 8),
}


def learners(*quick: str, more: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Those of ``quick`` in short, and ``more``."""
    names = [quick_where(name in quick, name) for name in (*quick, *more)]
    return pytest.mark.parametrize("learner", names)


@pytest.fixture
def make(small: Make) -> Make:
    shared = {"units": 16, "learning_rate": 0.01, "group_size": 2}
    return lambda learner, **changes: small(**{**shared, **LEARNERS[learner].settings, **changes})


@learners("mappo-team", "qmix", "maddpg", more=("happo", "poca", "coma", "idqn", "maddpg-hard"))
def test_agents_with_networks_of_their_own_learn_to_differ(make: Make, live, learner: str) -> None:
    kind = LEARNERS[learner]
    world = differ(1, kind.copies)
    live(make(learner, share="none"), world, kind.updates)
    assert world.score() > 0.85


@learners("coma", "vdn", more=("mappo-team", "happo", "poca", "idqn", "qmix", "maddpg-hard"))
@pytest.mark.parametrize("memory", [None, quick_where(False, {"memory_size": 8, "sequence_length": 4})])
def test_credit_for_a_group_reward_finds_its_earner(make: Make, live, learner: str, memory: Any) -> None:
    kind = LEARNERS[learner]
    world = OwnCue(1, kind.copies)
    live(make(learner, memory=memory), world, kind.updates)
    assert world.score() > 0.85


@learners("happo", "vdn", more=("mappo-team", "poca", "coma", "qmix", "maddpg-team"))
def test_an_agent_is_credited_for_rewards_after_its_death(make: Make, live, learner: str) -> None:
    kind = LEARNERS[learner]
    world = Sacrifice(1, kind.copies, steps=1)
    live(make(learner), world, kind.updates)
    assert world.score(20) > 0.85


def test_an_agent_that_learns_for_itself_sees_no_reason_to_die(make: Make, live) -> None:
    world = Sacrifice(1, steps=1)
    live(make("idqn"), world, 80)
    assert world.score(20) < 0.85


# With γ = ½ a reward of 1 for ever is worth 2. Where one step in four is the last, and looks like the others, it is
# Q = 1 + ½ · ¾ Q = 1.6. Each agent earns ½, and the group 1: 1.5 for one, 2 for the team, and COMA's half of that.
@pytest.mark.parametrize(
    ("learner", "ends", "worth"),
    [
        ("mappo", "truncated", 1.5 * 2.0),
        ("coma", "truncated", 2.0),
        ("idqn", "terminated", 1.5 * 1.6),
        ("maddpg-team", "truncated", 2.0 * 2.0),
        *(quick_where(False, name, "truncated", 2.0 * 2.0) for name in ("mappo-team", "poca", "qmix")),
        quick_where(False, "coma-scaled", "truncated", 2.0),
        quick_where(False, "maddpg", "terminated", 1.5 * 1.6),
    ],
)
def test_rewards_of_a_group_count_once_and_time_limits_bootstrap(
    make: Make, live, learner: str, ends: str, worth: float
) -> None:
    behavior, kind = make(learner, gamma=0.5), LEARNERS[learner]
    world = Clock(kind.copies, steps=4, ends=ends, own=0.5, group=1.0)
    live(behavior, world, 30 if "num_epoch" in kind.settings else 80)
    behavior.summarize(0.0)
    live(behavior, world, 2)
    series = behavior.summarize(0.0).series
    tag = "Policy/Extrinsic Value Estimate" if "num_epoch" in kind.settings else "Policy/Mean Q"
    assert series[tag].mean == pytest.approx(worth, rel=0.12)


class TwoSteps(Pairs):
    """The two-step game of Rashid et al. 2018, section 6.1: agent 0 says which table pays for the second choices.

    The first pays 7 whatever is done; the second pays 8 where both choose 1, 1 where one does, and else nothing.
    """

    TABLES = np.array([[[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.chosen: np.ndarray | None = None

    def step(self, actions: ActionBatch) -> StepBatch:
        choices = actions.discrete[:, 0].reshape(self.copies, 2)
        if self.chosen is None:
            self.chosen = choices[:, 0]
            self.seen = np.repeat(1.0 - 2.0 * self.chosen, 2)
            return self.rows()
        paid = self.TABLES[self.chosen, choices[:, 0], choices[:, 1]]
        self.chosen = None
        return self.ended(paid, group=np.repeat(paid, 2))


def totals(behavior: Behavior, seen: float = 0.0) -> np.ndarray:
    """The group's value where both see a number, for each pair of choices."""
    made = behavior.learner
    assert isinstance(made, GroupQLearner)
    shown = [torch.full((4, 2, 1), seen)]
    choices = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    with torch.inference_mode():
        networks = made.networks["network"]
        assert isinstance(networks, GroupNetworks)
        q = networks.network.group_outputs(GroupInput(shown))
        values = q.gather(2, choices.unsqueeze(2)).squeeze(2)
        assert networks.mixer is not None
        # The state is what both see.
        found: np.ndarray = networks.mixer(values, shown[0].flatten(1)).numpy()
        return found


def explore(make: Make, live, learner: str, table: list[list[float]], updates: int) -> Behavior:
    """All pairs of choices come up alike, to the end."""
    behavior = make(learner, exploration_final=1.0)
    live(behavior, Table(1, table), updates)
    return behavior


@learners("vdn", more=("qmix",))
def test_what_each_adds_is_found_where_it_adds_up(make: Make, live, learner: str) -> None:
    behavior = explore(make, live, learner, [[0, 1], [3, 4]], 150)
    assert totals(behavior) == pytest.approx([0, 1, 3, 4], abs=0.3)


@pytest.mark.thorough
@pytest.mark.parametrize(("learner", "worth", "table"), [("vdn", [6.93, 6.44], 0), ("qmix", [6.93, 7.92], 1)])
def test_the_two_step_game_is_won_with_a_mixer_only(
    make: Make, live, learner: str, worth: list[float], table: int
) -> None:
    # Where all choices come up alike, the sum that is nearest to the second table says 6.5 of its best pair.
    behavior = make(learner, gamma=0.99, exploration_final=1.0)
    live(behavior, TwoSteps(1), 300)
    first = totals(behavior, 0.0).reshape(2, 2).max(axis=1)
    assert first == pytest.approx(worth, abs=0.3)
    assert first.argmax() == table
    if learner == "qmix":
        assert totals(behavior, -1.0) == pytest.approx([0, 1, 1, 8], abs=0.2)


def test_a_policy_that_tells_agents_apart_needs_agent_indices(make: Make) -> None:
    behavior = make("mappo", share="none")
    policy = Policy(checkpoint_of(behavior))
    assert policy.num_agents == 2
    with pytest.raises(ValueError, match="say their agent_indices"):
        policy.act(np.zeros((3, 1), np.float32))
    with pytest.raises(ValueError, match="at least 3 agents, expected at most 2"):
        policy.act(np.zeros((3, 1), np.float32), agent_indices=[0, 1, 2])
    assert len(policy.act(np.zeros((3, 1), np.float32), agent_indices=[0, 1, 0])) == 3


def test_the_first_message_says_how_large_groups_are(make: Make) -> None:
    settings = make("mappo", group_size=None).settings
    assert settings.hyperparameters.group_size is None
    assert with_group_size(settings, 5).hyperparameters.group_size == 5
    assert with_group_size(with_group_size(settings, 5), 2).hyperparameters.group_size == 5
    with pytest.raises(UserError, match="a group of at least 257 agents, expected"):
        with_group_size(settings, 257)
