"""Gradient steps of MADDPG: the parameters that they move, and towards which targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.algorithms.common.off_policy.maddpg_update import MADDPGUpdate
from trainer_service.config import NetworkSettings
from trainer_service.config.hyperparameters.off_policy import MADDPGSettings
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

NUM_AGENTS, ROWS = 2, 6
CPU = torch.device("cpu")
NETWORK = NetworkSettings(hidden_units=8, num_layers=1)
ACTIONS = {"discrete": ActionSpec(0, (3,)), "continuous": ActionSpec(2), "both": ActionSpec(1, (2, 2))}

kinds = pytest.mark.parametrize("kind", ACTIONS)


def made(kind: str = "discrete", **changes: Any) -> MADDPGUpdate:
    torch.manual_seed(3)
    own = BehaviorSpec((ObservationSpec("eyes", (4,)),), ACTIONS[kind])
    hyper = MADDPGSettings(**{"group_size": NUM_AGENTS, "max_grad_norm": None, **changes})
    return MADDPGUpdate(own, NETWORK, hyper, [0], NUM_AGENTS, CPU)


def batch(**changes: Any) -> JointMinibatch:
    chance = torch.Generator().manual_seed(1)
    there = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
    given = {
        "observations": [torch.randn(ROWS, NUM_AGENTS, 4, generator=chance)],
        "next_observations": [torch.randn(ROWS, NUM_AGENTS, 4, generator=chance)],
        "state": None,
        "next_state": None,
        "present": there,
        "next_present": there,
        "actions": torch.zeros(ROWS, NUM_AGENTS, 1, dtype=torch.int64),
        "allowed": None,
        "next_allowed": None,
        "rewards": torch.zeros(ROWS, NUM_AGENTS),
        "summed_rewards": torch.zeros(ROWS),
        "terminated": ~there,
        "discounts": torch.full((ROWS, NUM_AGENTS), 0.5),
        "weights": None,
    }
    return JointMinibatch(**{**given, **changes})


def done(kind: str) -> torch.Tensor:
    """Actions of all agents. [ROWS, PLACES, C + K]"""
    actions, chance = ACTIONS[kind], torch.Generator().manual_seed(2)
    size = actions.continuous_size + actions.mask_size
    return torch.rand(ROWS, NUM_AGENTS, size, generator=chance)


def noise(chance: torch.Generator | None = None) -> Callable[[torch.Tensor], torch.Tensor]:
    chance = chance or torch.Generator().manual_seed(7)
    return lambda like: torch.empty_like(like).exponential_(generator=chance)


def vectors(rule: MADDPGUpdate) -> dict[str, torch.Tensor]:
    return {
        part: torch.cat([value.flatten() for value in rule.weights()[part].state_dict().values()]).clone()
        for part in ("actors", "critics", "target_actors", "target_critics")
    }


def always(rule: MADDPGUpdate, *values: float) -> None:
    """Lets each target critic say the same of everything."""
    head = rule._target_critics.network.value
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor(values).view(NUM_AGENTS, 1, 1))


@kinds
def test_updates_of_actors_and_critics_move_nothing_else(kind: str) -> None:
    rule, minibatch, actions = made(kind), batch(), done(kind)
    before = vectors(rule)
    rule.update_actors(minibatch, actions, None, 0.01, noise())
    after = vectors(rule)
    assert not torch.equal(before["actors"], after["actors"])
    assert torch.equal(before["critics"], after["critics"])
    assert not rule._critic_optimizer.parameters.gradient.any()
    assert rule.optimizers()["critic_optimizer"].adam.state_dict()["steps"] == 0
    rule.update_critics(minibatch, actions, 0.01)
    last = vectors(rule)
    assert torch.equal(after["actors"], last["actors"])
    assert not torch.equal(after["critics"], last["critics"])
    for part in ("target_actors", "target_critics"):
        assert torch.equal(before[part], last[part])
    rule.soft_update_targets(0.25)
    expected = 0.75 * before["target_actors"] + 0.25 * last["actors"]
    torch.testing.assert_close(vectors(rule)["target_actors"], expected)


def test_each_learns_from_its_own_rewards_and_its_own_target() -> None:
    rule = made()
    always(rule, 10.0, 20.0)
    rewards = torch.tensor([[1.0, 2.0]]).repeat(ROWS, 1)
    ends = torch.zeros(ROWS, NUM_AGENTS, dtype=torch.bool)
    assert rule._targets(batch(rewards=rewards)).tolist() == [[6.0, 12.0]] * ROWS
    ends[0, 1] = True
    targets = rule._targets(batch(rewards=rewards, terminated=ends, next_present=~ends))
    assert targets.tolist() == [[6.0, 2.0]] + [[6.0, 12.0]] * (ROWS - 1)


def test_summed_rewards_give_dead_agents_value_until_the_group_ends() -> None:
    rule = made(reward_mode="team_sum")
    always(rule, 10.0, 20.0)
    there = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
    there[0, 1] = False
    there[1] = False
    minibatch = batch(summed_rewards=torch.full((ROWS,), 3.0), terminated=~there, next_present=there)
    assert rule._targets(minibatch).tolist() == [[8.0, 13.0], [3.0, 3.0]] + [[8.0, 13.0]] * (ROWS - 2)


@kinds
def test_targets_are_of_what_the_target_actors_would_do(kind: str) -> None:
    rule, minibatch = made(kind), batch()
    before = rule._targets(minibatch)
    with torch.no_grad():
        for parameter in rule.actors.parameters():
            parameter.add_(5.0)
        torch.testing.assert_close(rule._targets(minibatch), before)
        rule._target_actors.network.output.bias.add_(torch.randn(1, 1, rule.actors.actions.size) * 9.0)
    assert not torch.allclose(rule._targets(minibatch), before)


def test_a_forbidden_choice_is_nobodys_next_one() -> None:
    rule, allowed = made(), torch.ones(ROWS, NUM_AGENTS, 3, dtype=torch.bool)
    allowed[..., 1] = False
    with torch.no_grad():
        rule._target_actors.network.output.bias[..., 1] = 100.0
    free = rule._target_actions(batch())
    bound = rule._target_actions(batch(next_allowed=allowed))
    assert (free[..., 1] == 1.0).all()
    assert (bound[..., 1] == 0.0).all()
    assert (bound.sum(dim=2) == 1.0).all()


@pytest.mark.parametrize("hard", [False, True])
@kinds
def test_an_actor_learns_from_its_action_and_others_replayed_ones(kind: str, hard: bool) -> None:
    gradients = []
    for other in (0.0, 3.0):
        rule = made(kind, hard_gumbel=hard)
        with torch.no_grad():
            rule.actors.output.bias[1].add_(other)
            rule._critics.value.weight[1].mul_(1.0 + other)
        rule.update_actors(batch(), done(kind), None, 1e-9, noise())
        gradients.append(rule.actors.output.weight.grad.clone())
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])
    rule = made(kind, hard_gumbel=hard)
    elsewhere = done(kind)
    elsewhere[:, 1] += 1.0
    rule.update_actors(batch(), elsewhere, None, 1e-9, noise())
    assert not torch.allclose(gradients[0][0], rule.actors.output.weight.grad[0])


@kinds
def test_outputs_far_from_zero_cost_what_the_penalty_says(kind: str) -> None:
    rule = made(kind, logits_penalty=0.25)
    with torch.no_grad():
        for head in (rule._critics.value, rule.actors.output):
            head.weight.zero_()
        rule.actors.output.bias.copy_(
            torch.tensor([2.0, 4.0]).view(NUM_AGENTS, 1, 1).expand_as(rule.actors.output.bias)
        )
    # ¼ · 2² and ¼ · 4², where critics say that nothing matters.
    loss = rule.update_actors(batch(), done(kind), None, 1e-9, noise())
    assert loss.item() == pytest.approx((1.0 + 4.0) / 2)


@pytest.mark.parametrize("mode", ["individual", "team_sum"])
def test_nothing_is_learned_from_who_was_not_there(mode: str) -> None:
    there = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
    there[:3, 1] = False
    losses = []
    for rubbish in (0.0, 50.0):
        rule = made(reward_mode=mode)
        rewards = torch.where(there, 1.0, rubbish)
        actions = torch.where(there.unsqueeze(2), done("discrete"), rubbish)
        minibatch = batch(present=there, rewards=rewards)
        report = rule.update_critics(minibatch, actions, 0.01)
        loss = rule.update_actors(minibatch, actions, None, 0.01, noise())
        losses.append(
            [report.squared.item(), report.value.item(), loss.item(), *vectors(rule)["actors"].tolist()]
        )
        assert report.absolute.shape == (ROWS,)
    assert losses[0] == losses[1]


def test_a_rare_row_counts_as_much_as_its_weight() -> None:
    gradients = []
    for weights in (None, torch.ones(ROWS), torch.cat([torch.full((1,), 0.5), torch.ones(ROWS - 1)])):
        rule = made()
        rule.update_critics(
            batch(weights=weights, rewards=torch.ones(ROWS, NUM_AGENTS)), done("discrete"), 1e-9
        )
        gradients.append(rule._critic_optimizer.parameters.gradient.clone())
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.allclose(gradients[0], gradients[2])


def test_critics_come_to_say_what_their_targets_say() -> None:
    rule = made()
    always(rule, 1.0, -1.0)
    minibatch, actions = batch(), done("discrete")
    for _ in range(300):
        report = rule.update_critics(minibatch, actions, 0.02)
    assert report.squared.item() < 1e-3
    values = rule._critics.forward(minibatch.observations, minibatch.present, actions.unsqueeze(1))
    torch.testing.assert_close(values.mean(dim=0), torch.tensor([0.5, -0.5]), atol=0.05, rtol=0.0)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.probe
def test_actors_find_the_choice_that_their_critics_value(hard: bool) -> None:
    rule = made(hard_gumbel=hard)
    minibatch, chance = batch(), torch.Generator().manual_seed(7)
    worth = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for _ in range(200):  # critic i learns that its agent's choice i + 1 is worth 1
        choices = torch.randint(3, (ROWS, NUM_AGENTS), generator=chance)
        actions = torch.eye(3)[choices]
        paid = worth[torch.arange(NUM_AGENTS), choices]
        ends = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
        lived = minibatch._replace(rewards=paid, terminated=ends)
        rule.update_critics(lived, actions, 0.02)
        rule.update_actors(lived, actions, None, 0.02, noise(chance))
    chosen = rule.actors.group_policy(minibatch.observations).logits.argmax(dim=2)
    assert chosen.tolist() == [[1, 2]] * ROWS
