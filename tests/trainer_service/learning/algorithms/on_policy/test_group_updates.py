"""One update of learners of groups, in a world of one decision per episode."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.learning.algorithms.common.on_policy import update
from trainer_service.learning.algorithms.on_policy.mappo import MAPPO
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

COPIES, CHOICES = 16, 3
LEARNERS: dict[str, dict[str, Any]] = {
    "mappo": {"trainer_type": "mappo"},
    "mappo-team": {"trainer_type": "mappo", "reward_mode": "team_sum"},
    "happo": {"trainer_type": "happo", "reward_mode": "team_sum"},
    "poca": {"trainer_type": "poca"},
    "coma": {"trainer_type": "coma"},
}
learners = pytest.mark.parametrize("learner", LEARNERS)


@pytest.fixture
def make(small: Callable[..., Behavior]) -> Callable[..., Behavior]:
    # No multiple of the minibatch: 112 steps are left over of 256, half of them in each of two agents' own.
    sizes = {"batch_size": 144, "buffer_size": 256, "group_size": 2, "learning_rate": 0.01}
    body = {"branches": (CHOICES,), "units": 16, "gamma": 0.9}

    def build(learner: str, **changes: Any) -> Behavior:
        epochs = {} if learner == "coma" else {"num_epoch": 3}
        return small(**{**body, **sizes, **epochs, **LEARNERS[learner], **changes})

    return build


class Pairs:
    """Pairs that decide once; then their episode ends in the way that was asked for. All observations are equal."""

    def __init__(self, *, ends: str = "terminated", own: Any = 0.0, group: float = 0.0) -> None:
        self.ends, self.own, self.group = ends, own, group
        self.allowed = np.ones((2 * COPIES, CHOICES), np.bool_)
        self.chosen: set[int] = set()

    def rows(self, rewards: np.ndarray, group: float, **ends: Any) -> StepBatch:
        return step_batch(
            [np.ones((2 * COPIES, 1), np.float32)],
            rewards.astype(np.float32),
            agent_ids=np.arange(2 * COPIES),
            allowed_actions=self.allowed,
            group_ids=1 + np.arange(2 * COPIES) // 2,
            group_rewards=np.full(2 * COPIES, group, np.float32),
            **ends,
        )

    def begin(self) -> StepBatch:
        return self.rows(np.zeros(2 * COPIES), 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.chosen |= set(actions.discrete[:, 0].tolist())
        ended = {self.ends: np.ones(2 * COPIES, np.bool_)}
        earned = self.own(actions) if callable(self.own) else np.broadcast_to(self.own, (COPIES, 2)).flatten()
        return concatenate(self.rows(earned, self.group, **ended), self.begin())


def spied(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Arguments and results of a method, or of a module's function, from now on."""
    heard: list[tuple[Any, Any]] = []
    method = getattr(owner, name)

    def listen(*arguments: Any) -> Any:
        result = method(*arguments)
        heard.append((arguments, result))
        return result

    monkeypatch.setattr(owner, name, listen)
    return heard


def spied_estimates(behavior: Behavior, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Arguments and results of the learner's estimates of advantages: its central critic's, or its own."""
    learner: Any = behavior.learner
    return spied(getattr(learner, "critic", learner), "estimate", monkeypatch)


def statistics(behavior: Behavior) -> dict[str, float]:
    return {tag: series.value for tag, series in behavior.summarize(0.0).series.items()}


@learners
def test_every_step_counts_once_in_every_pass(make, live, monkeypatch, learner: str) -> None:
    behavior = make(learner)
    seen: list[torch.Tensor] = []

    def listening(evaluate: Any, *others: Any) -> Any:
        def listen(rollout: Any, steps: torch.Tensor, sequences: Any) -> Any:
            seen.append(steps)
            return evaluate(rollout, steps, sequences)

        return update.surrogate(listen, *others)

    monkeypatch.setattr(f"{type(behavior.learner).__module__}.surrogate", listening)
    live(behavior, Pairs(), 1)
    passes = 1 if learner == "coma" else 3
    times = torch.bincount(torch.cat(seen), minlength=256)
    assert times.tolist() == [passes] * 256


@learners
def test_rewards_reach_their_agents_and_ends_are_not_bootstrapped(
    make, live, monkeypatch, learner: str
) -> None:
    """The first agent earns 1, the second 2, their group 10."""
    behavior = make(learner)
    estimates = spied_estimates(behavior, monkeypatch)
    live(behavior, Pairs(own=[1.0, 2.0], group=10.0), 1)
    ((_, critic_targets),) = estimates
    expected = {"mappo": [11.0, 12.0], "coma": [6.5]}.get(learner, [13.0])
    mask = critic_targets.mask
    targets = critic_targets.targets.expand(*mask.shape, -1)[mask]
    assert targets.round(decimals=3).unique().tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("asked", "times"), [("once", 1), ("every_epoch", 3)])
def test_actors_learn_from_advantages_by_the_newest_critic_if_asked(
    make, live, monkeypatch, asked: str, times: int
) -> None:
    """Three epochs."""
    behavior = make("mappo", advantage_estimates=asked)
    estimates = spied_estimates(behavior, monkeypatch)
    taken = spied(sys.modules[MAPPO.__module__], "surrogate", monkeypatch)
    live(behavior, Pairs(own=lambda actions: 1.0 * actions.discrete[:, 0]), 1)
    values = torch.stack([critic_targets.old_values.mean() for _, critic_targets in estimates])
    assert len(values.unique()) == times
    used = [arguments[2] for arguments, _ in taken]
    newest = [estimates[min(epoch, times - 1)][1].advantages for epoch in range(3)]
    assert all(torch.equal(advantages, due) for advantages, due in zip(used, newest, strict=True))


@learners
def test_the_critic_bootstraps_past_a_time_limit(make, live, monkeypatch, learner: str) -> None:
    behavior = make(learner)
    estimates = spied_estimates(behavior, monkeypatch)
    live(behavior, Pairs(ends="truncated", own=1.0), 2)
    (_, first), (_, critic_targets) = estimates
    # All see the same before and after, so what follows is worth what the critic says of now.
    mask = critic_targets.mask
    targets = critic_targets.targets.expand(*mask.shape, -1)[mask]
    earned = 1.0 if learner in ("mappo", "coma") else 2.0
    assert float((targets - earned).abs().min()) > 1e-3
    assert float(targets.mean()) > float(first.targets.expand(*first.mask.shape, -1)[first.mask].mean())


@pytest.mark.parametrize(
    ("learner", "scaling"), [("mappo", "none"), ("mappo", "valuenorm"), ("happo", "valuenorm")]
)
def test_values_are_learned_in_units_of_the_returns(make, live, learner: str, scaling: str) -> None:
    behavior = make(learner, value_normalization=scaling)
    rng = np.random.default_rng(1)
    world = Pairs(own=lambda _: np.repeat(rng.choice([500.0, 1500.0], COPIES), 2) / 2)
    live(behavior, world, 1)
    behavior.summarize(0.0)
    moments = checkpoint_of(behavior).algorithm["critic"]
    live(behavior, world, 1)
    metrics = statistics(behavior)["Policy/Extrinsic Value Estimate"]
    mean = 500.0 if learner == "mappo" else 1000.0
    if scaling == "none":
        # A few steps at this rate do not get anywhere near.
        assert abs(metrics) < 10.0
    else:
        assert float(moments["value.mean"] / moments["value.weight"]) == pytest.approx(mean, rel=0.2)
        assert metrics == pytest.approx(mean, rel=0.5)


class Stragglers:
    """Pairs whose second member is cut off after its first decision; the first one decides once more, and ends."""

    first = np.arange(0, 2 * COPIES, 2)

    def rows(self, who: np.ndarray, **ends: Any) -> StepBatch:
        return step_batch(
            [np.ones((len(who), 1), np.float32)],
            np.ones(len(who), np.float32),
            agent_ids=who,
            allowed_actions=np.ones((len(who), CHOICES), np.bool_),
            group_ids=1 + who // 2,
            **{how: np.ones(len(who), np.bool_) for how in ends},
        )

    def begin(self) -> StepBatch:
        self.alone = False
        return self.rows(np.arange(2 * COPIES))

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.alone:
            return concatenate(self.rows(self.first, terminated=True), self.begin())
        self.alone = True
        return concatenate(self.rows(self.first + 1, truncated=True), self.rows(self.first))


def test_comas_critic_keeps_the_drawn_actions_of_agents_cut_off(make, live, monkeypatch) -> None:
    behavior = make("coma", batch_size=1024, value_normalization="none")
    estimates = spied_estimates(behavior, monkeypatch)
    live(behavior, Stragglers(), 1)
    (((rollout,), critic_targets),) = estimates
    mask = critic_targets.mask
    cut_off = (rollout.joint_steps.members >= 0) & (rollout.joint_steps.steps < 0)
    assert cut_off[mask.any(dim=1).numpy()].any()
    steps = torch.from_numpy(rollout.joint_steps.steps)[mask]
    taken = critic_targets.old_values[steps, rollout.discrete_actions[steps, 0]]
    targets = critic_targets.targets.expand(*mask.shape, -1)[mask]
    loss = statistics(behavior)["Losses/Value Loss"]  # of the only minibatch
    assert loss == pytest.approx(float((taken - targets).square().mean()), rel=1e-5)


def test_coma_may_compare_what_was_returned_with_the_agents_other_choices(make, live, monkeypatch) -> None:
    def choice(actions: ActionBatch) -> np.ndarray:
        return actions.discrete[:, 0].astype(np.float32)

    uniform = {"exploration_initial": 1.0, "exploration_final": 1.0}
    plain = make("coma", action_value="return", **uniform)
    standard = make("coma", action_value="return", advantage_normalization="global", **uniform)
    heard = [spied_estimates(behavior, monkeypatch) for behavior in (plain, standard)]
    for behavior in (plain, standard):
        live(behavior, Pairs(own=choice), 1)
    ((rollout,), critic_targets), ((_,), standardized) = heard[0][0], heard[1][0]
    # Episodes of one step: the return is half of what both earned, and every choice was as likely.
    earned = np.bincount(rollout.joint_steps.of_step, weights=rollout.discrete_actions[:, 0].numpy()) / 2
    expected = earned[rollout.joint_steps.of_step] - critic_targets.old_values[..., 0].mean(dim=1).numpy()
    assert critic_targets.advantages.numpy() == pytest.approx(expected, abs=1e-5)
    scaled = (expected - expected.mean()) / expected.std()
    assert standardized.advantages.numpy() == pytest.approx(scaled, abs=1e-5)


def test_happos_later_agent_is_weighted_by_the_changes_of_the_earlier(make, live, monkeypatch) -> None:
    behavior = make("happo", fixed_order=True)
    taken = spied(sys.modules[type(behavior.learner).__module__], "surrogate", monkeypatch)
    estimates = spied_estimates(behavior, monkeypatch)
    live(behavior, Pairs(own=lambda actions: 1.0 * actions.discrete[:, 0]), 1)
    (((_, rollout, weighted, *_), _),) = taken
    factor = (weighted / rollout.weighted(estimates[0][1].advantages)).numpy()
    first, second = (rollout.joint_steps.agent_of_step == agent for agent in (0, 1))
    assert factor[first] == pytest.approx(1.0)
    # All see the same, so an earlier agent's choice says how its probability has changed: what pays most most.
    of_step, choices = rollout.joint_steps.of_step, rollout.discrete_actions[:, 0].numpy()
    of_partner = np.zeros(len(rollout.joint_steps), np.int64)
    of_partner[of_step[first]] = choices[first]
    found = [factor[second][of_partner[of_step[second]] == choice] for choice in range(CHOICES)]
    assert all(each == pytest.approx(each[0], rel=1e-4) for each in found)
    assert found[0][0] < 1.0 < found[2][0]


def test_happos_agents_learn_in_a_drawn_order_unless_it_is_fixed(make) -> None:
    drawn, fixed = (
        {
            tuple(make("happo", group_size=4, fixed_order=fixed, seed=seed).learner._agent_order())
            for seed in range(8)
        }
        for fixed in (False, True)
    )
    assert fixed == {(0, 1, 2, 3)}
    assert len(drawn) > 1
    assert all(sorted(order) == [0, 1, 2, 3] for order in drawn)


def test_pocas_agents_are_measured_from_baselines_of_their_own(make, live, monkeypatch) -> None:
    behavior = make("poca")
    estimates = spied_estimates(behavior, monkeypatch)
    live(behavior, Pairs(own=lambda actions: 1.0 * actions.discrete[:, 0]), 1)
    (((rollout, _), estimate),) = estimates
    of_step, agents = rollout.joint_steps.of_step, rollout.joint_steps.agent_of_step
    returns, baselines = estimate.targets[:, 0, 0].numpy(), estimate.old_values[:, 1:, 0].numpy()
    assert np.abs(baselines[:, 0] - baselines[:, 1]).max() > 0.01
    advantages = returns[of_step] - baselines[of_step, agents]
    standard = (advantages - advantages.mean()) / advantages.std()
    assert estimate.advantages.numpy() == pytest.approx(standard, abs=1e-4)


def test_pocas_loss_has_half_the_error_of_present_agents_baselines(make, live, monkeypatch) -> None:
    behavior = make("poca", batch_size=1024, num_epoch=1)
    estimates = spied_estimates(behavior, monkeypatch)
    live(behavior, Stragglers(), 1)
    (((rollout, _), estimate),) = estimates
    errors = (estimate.old_values - estimate.targets)[..., 0].square()
    present = torch.from_numpy(rollout.joint_steps.steps >= 0)
    assert not present.all()
    expected = errors[:, 0].mean() + 0.5 * errors[:, 1:][present].mean()
    loss = statistics(behavior)["Losses/Value Loss"]  # of the only minibatch
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_comas_exploration_rate_reaches_its_final_value(make, live) -> None:
    behavior = make("coma", exploration_initial=0.5, exploration_final=0.1, exploration_steps=512)
    world = Pairs()
    for expected in (0.3, 0.1, 0.1):
        live(behavior, world, 1)
        assert statistics(behavior)["Policy/Exploration Rate"] == pytest.approx(expected)


def test_forbidden_choices_are_not_explored(make, live) -> None:
    world = Pairs()
    world.allowed[:, 0] = False
    live(make("coma", exploration_initial=1.0, exploration_final=1.0), world, 1)
    assert world.chosen == {1, 2}


def test_comas_target_is_copied_every_target_update_steps(make, live) -> None:
    for due in (10**6, 1):
        behavior = make("coma", target_update=due)
        start = {name: each.clone() for name, each in checkpoint_of(behavior).algorithm["critic"].items()}
        live(behavior, Pairs(own=1.0), 1)
        state = checkpoint_of(behavior).algorithm
        moved = {
            part: any(not torch.equal(state[part][name], start[name]) for name in start)
            for part in ("critic", "target")
        }
        assert moved == {"critic": True, "target": due == 1}
        resumed = make("coma", target_update=due)
        restore(resumed, checkpoint_of(behavior))
        assert checkpoint_of(resumed).algorithm["critic_steps"] == state["critic_steps"] > 0
