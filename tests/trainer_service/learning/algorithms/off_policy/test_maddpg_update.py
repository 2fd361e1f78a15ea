"""How MADDPG explores; its gradient steps: the parameters that they move, and towards which targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import begin_world, run_ticks
from replayed import learn_from
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import MADDPG, Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

NUM_AGENTS, ROWS = 2, 6
ACTIONS = {"discrete": ActionSpec(0, (3,)), "continuous": ActionSpec(2), "both": ActionSpec(1, (2, 2))}

kinds = pytest.mark.parametrize("kind", ACTIONS)


def made(kind: str = "discrete", **changes: Any) -> MADDPG:
    own = BehaviorSpec((ObservationSpec("eyes", (4,)),), ACTIONS[kind])
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": "maddpg",
            "hyperparameters": {"group_size": NUM_AGENTS, "max_grad_norm": None, "tau": 0.25, **changes},
            "network_settings": {"hidden_units": 8, "num_layers": 1},
            "max_steps": 1000,
        }
    )
    return MADDPG(selector_for(own, settings).spec, settings, Compute(torch.device("cpu"), 3))


def batch(kind: str = "discrete", **changes: Any) -> JointMinibatch:
    chance, actions = torch.Generator().manual_seed(1), ACTIONS[kind]
    there = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
    choices = [
        torch.randint(size, (ROWS, NUM_AGENTS), generator=chance) for size in actions.discrete_branches
    ]
    given = {
        "observations": [torch.randn(ROWS, NUM_AGENTS, 4, generator=chance)],
        "next_observations": [torch.randn(ROWS, NUM_AGENTS, 4, generator=chance)],
        "state": None,
        "next_state": None,
        "present": there,
        "next_present": there,
        "continuous_actions": torch.rand(ROWS, NUM_AGENTS, actions.continuous_size, generator=chance),
        "actions": torch.stack(choices, dim=2) if choices else torch.zeros(ROWS, NUM_AGENTS, 0).long(),
        "allowed": None,
        "next_allowed": None,
        "rewards": torch.zeros(ROWS, NUM_AGENTS),
        "summed_rewards": torch.zeros(ROWS),
        "terminated": ~there,
        "discounts": torch.full((ROWS, NUM_AGENTS), 0.5),
        "weights": None,
    }
    return JointMinibatch(**{**given, **changes})


def with_others(minibatch: JointMinibatch) -> JointMinibatch:
    """The same, but for what the second agent does."""
    numbers, choices = minibatch.continuous_actions.clone(), minibatch.actions.clone()
    numbers[:, 1] += 1.0
    choices[:, 1] = 1 - choices[:, 1].clamp(max=1)
    return minibatch._replace(continuous_actions=numbers, actions=choices)


def noise(chance: torch.Generator | None = None) -> Callable[[torch.Tensor], torch.Tensor]:
    chance = chance or torch.Generator().manual_seed(7)
    return lambda like: torch.empty_like(like).exponential_(generator=chance)


def slopes(rule: MADDPG, part: str, loss: torch.Tensor) -> torch.Tensor:
    """The gradient of actors or critics, end to end."""
    found = torch.autograd.grad(loss, list(rule.networks[part].parameters()))
    return torch.cat([each.flatten() for each in found])


def vectors(rule: MADDPG) -> dict[str, torch.Tensor]:
    return {
        part: torch.cat([value.flatten() for value in network.state_dict().values()]).clone()
        for part, network in rule.networks.items()
    }


def always(rule: MADDPG, *values: float) -> None:
    """Lets each target critic say the same of everything."""
    head = rule.networks["target_critics"].value
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor(values).view(NUM_AGENTS, 1, 1))


@kinds
def test_updates_of_actors_and_critics_move_nothing_else(kind: str) -> None:
    rule, before = made(kind), None
    for optimizer, part in (("critic_optimizer", "critics"), ("actor_optimizer", "actors")):
        own, minimize = rule.optimizers[optimizer], rule.optimizers[optimizer].minimize

        def watch(*given: Any, minimize: Any = minimize, part: str = part) -> None:
            earlier = vectors(rule)
            minimize(*given)
            later = vectors(rule)
            assert {name for name in later if not torch.equal(later[name], earlier[name])} == {part}

        own.minimize = watch  # type: ignore[method-assign]
    before = vectors(rule)
    learn_from(rule, batch(kind), rate=0.01)
    after = vectors(rule)
    for part in ("actors", "critics"):
        expected = 0.75 * before[f"target_{part}"] + 0.25 * after[part]
        torch.testing.assert_close(after[f"target_{part}"], expected)
    assert [each.adam.state_dict()["steps"] for each in rule.optimizers.values()] == [1, 1]


def test_each_learns_from_its_own_rewards_and_its_own_target() -> None:
    rule = made()
    always(rule, 10.0, 20.0)
    rewards = torch.tensor([[1.0, 2.0]]).repeat(ROWS, 1)
    ends = torch.zeros(ROWS, NUM_AGENTS, dtype=torch.bool)
    assert rule.targets(batch(rewards=rewards)).tolist() == [[6.0, 12.0]] * ROWS
    ends[0, 1] = True
    targets = rule.targets(batch(rewards=rewards, terminated=ends, next_present=~ends))
    assert targets.tolist() == [[6.0, 2.0]] + [[6.0, 12.0]] * (ROWS - 1)


def test_team_rewards_give_dead_agents_value_until_the_group_ends() -> None:
    rule = made(reward_mode="team_sum")
    always(rule, 10.0, 20.0)
    there = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
    there[0, 1] = False
    there[1] = False
    minibatch = batch(summed_rewards=torch.full((ROWS,), 3.0), terminated=~there, next_present=there)
    assert rule.targets(minibatch).tolist() == [[8.0, 13.0], [3.0, 3.0]] + [[8.0, 13.0]] * (ROWS - 2)


@kinds
def test_targets_are_of_what_the_target_actors_would_do(kind: str) -> None:
    rule, minibatch = made(kind), batch(kind)
    before, target = rule.targets(minibatch), rule.networks["target_actors"]
    with torch.no_grad():
        for parameter in rule.networks["actors"].parameters():
            parameter.add_(5.0)
        torch.testing.assert_close(rule.targets(minibatch), before)
        target.output.bias.add_(torch.randn(1, 1, target.actions.size) * 9.0)
    assert not torch.allclose(rule.targets(minibatch), before)


def test_a_forbidden_choice_is_nobodys_next_one() -> None:
    rule, allowed = made(), torch.ones(ROWS, NUM_AGENTS, 3, dtype=torch.bool)
    allowed[..., 1] = False
    with torch.no_grad():
        rule.networks["target_actors"].output.bias[..., 1] = 100.0
    free = rule.next_actions(batch())
    bound = rule.next_actions(batch(next_allowed=allowed))
    assert (free[..., 1] == 1.0).all()
    assert (bound[..., 1] == 0.0).all()
    assert (bound.sum(dim=2) == 1.0).all()


@pytest.mark.parametrize("hard", [False, True])
@kinds
def test_an_actor_learns_from_its_action_and_others_replayed_ones(kind: str, hard: bool) -> None:
    def gradient(other: float, minibatch: JointMinibatch) -> torch.Tensor:
        rule = made(kind, hard_gumbel=hard)
        actors, critics = rule.networks["actors"], rule.networks["critics"]
        with torch.no_grad():
            actors.output.bias[1].add_(other)
            critics.value.weight[1].mul_(1.0 + other)
        (found,) = torch.autograd.grad(
            rule.policy_loss(minibatch, rule.taken(minibatch), noise()), [actors.output.weight]
        )
        return found

    as_it_is, changed = gradient(0.0, batch(kind)), gradient(3.0, batch(kind))
    assert torch.equal(as_it_is[0], changed[0])
    assert not torch.allclose(as_it_is[1], changed[1])
    assert not torch.allclose(as_it_is[0], gradient(0.0, with_others(batch(kind)))[0])


@kinds
def test_outputs_far_from_zero_cost_what_the_penalty_says(kind: str) -> None:
    rule = made(kind, logits_penalty=0.25)
    bias = rule.networks["actors"].output.bias
    with torch.no_grad():
        for head in (rule.networks["critics"].value, rule.networks["actors"].output):
            head.weight.zero_()
        bias.copy_(torch.tensor([2.0, 4.0]).view(NUM_AGENTS, 1, 1).expand_as(bias))
    # ¼ · 2² and ¼ · 4², where critics say that nothing matters.
    minibatch = batch(kind)
    assert rule.policy_loss(minibatch, rule.taken(minibatch), noise()).item() == pytest.approx(1.0 + 4.0)
    assert learn_from(rule, batch(kind))["Losses/Policy Loss"] == pytest.approx((1.0 + 4.0) / 2)


@pytest.mark.parametrize("mode", ["individual", "team_sum"])
def test_nothing_is_learned_from_who_was_not_there(mode: str) -> None:
    there = torch.ones(ROWS, NUM_AGENTS, dtype=torch.bool)
    there[:3, 1] = False
    losses = []
    for choice, rubbish in ((0, 0.0), (2, 50.0)):
        rule, minibatch = made(reward_mode=mode), batch(present=there)
        rewards = torch.where(there, 1.0, rubbish)
        actions = torch.where(there.unsqueeze(2), minibatch.actions, choice)
        minibatch = minibatch._replace(rewards=rewards, actions=actions)
        assert rule.critic_errors(minibatch, rule.taken(minibatch)).absolute.shape == (ROWS,)
        told = learn_from(rule, minibatch, rate=0.01)
        losses.append([told, vectors(rule)["actors"].tolist()])
    assert losses[0] == losses[1]


def test_a_rare_row_counts_as_much_as_its_weight() -> None:
    gradients = []
    for weights in (None, torch.ones(ROWS), torch.cat([torch.full((1,), 0.5), torch.ones(ROWS - 1)])):
        rule = made()
        minibatch = batch(weights=weights, rewards=torch.ones(ROWS, NUM_AGENTS))
        errors = rule.critic_errors(minibatch, rule.taken(minibatch))
        gradients.append(slopes(rule, "critics", errors.loss))
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.allclose(gradients[0], gradients[2])


def test_choices_are_sampled_and_numbers_get_noise_while_learning(small) -> None:
    body = {"sizes": (SENSOR,), "continuous": 1, "branches": (2, 3), "normalize": True}
    sizes = {"batch_size": 8, "buffer_size": 40, "steps_per_update": 6, "group_size": NUM_AGENTS}
    behavior = small("maddpg", **body, **sizes, exploration_noise=0.2)
    run_ticks(behavior, *begin_world(behavior, ShortEpisodes(behavior.spec.action_spec, 6)), 12)
    rows = 4000
    seen, who = np.full((rows, SENSOR), 0.3, np.float32), np.tile(np.float32([1, 0]), (rows, 1))
    allowed = np.ones((rows, 5), np.bool_)
    allowed[:, 3] = False
    algorithm, nothing = behavior.learner, np.zeros((rows, 0), np.float32)
    drawn = algorithm.actor.act(ActRequest([seen, who], allowed, nothing))
    surely = algorithm.actor.act(ActRequest([seen, who], allowed, nothing, True))
    assert (drawn.continuous_actions - surely.continuous_actions).std() == pytest.approx(0.2, abs=0.02)
    with torch.inference_mode():
        inputs = algorithm.actor.normalizer.forward([torch.from_numpy(each[:1]) for each in (seen, who)])
        logits = algorithm.networks["actors"].policy(inputs).logits[0]
    assert drawn.discrete_actions[:, 0].mean() == pytest.approx(logits[:2].softmax(0)[1].item(), abs=0.04)
    of_two = logits[[2, 4]].softmax(0)[1].item()
    assert set(drawn.discrete_actions[:, 1].tolist()) == {0, 2}
    assert (drawn.discrete_actions[:, 1] == 2).mean() == pytest.approx(of_two, abs=0.04)
    policy = Policy(checkpoint_of(behavior))
    calm = policy.act(seen, allowed, agent_indices=np.zeros(rows, int), deterministic=False)
    np.testing.assert_allclose(calm.continuous, surely.continuous_actions, atol=1e-6)
