"""Action values, with numbers that were worked out by hand."""

from __future__ import annotations

import pytest
import torch

from trainer_service.ops.q_learning import (
    advantage_targets,
    best_value,
    chosen_value,
    double_q_value,
    dueling,
    exploring,
    masked_argmax,
    random_choices,
    td_loss,
    td_targets,
)

ONE, TWO = (3,), (2, 3)
Q = torch.tensor([[1.0, 3.0, 2.0], [4.0, -1.0, 0.0]])
BRANCHED = torch.tensor([[1.0, 2.0, 5.0, 7.0, 6.0], [3.0, 0.0, -1.0, -2.0, -3.0]])


def chance(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_what_is_forbidden_is_not_chosen_however_good_it_is() -> None:
    allowed = torch.tensor([[True, False, True], [False, True, False]])
    assert masked_argmax(Q, allowed, ONE).tolist() == [[2], [1]]
    allowed = torch.tensor([[True, False, True, False, False], [True] * 5])
    assert masked_argmax(BRANCHED, allowed, TWO).tolist() == [[0, 0], [0, 0]]


def test_where_all_is_forbidden_the_first_choice_counts() -> None:
    nothing = torch.zeros((2, 3), dtype=torch.bool)
    assert masked_argmax(Q, nothing, ONE).tolist() == [[0], [0]]
    assert best_value(Q, nothing, ONE).tolist() == [1.0, 4.0]


def test_an_action_is_worth_the_sum_over_its_branches() -> None:
    assert chosen_value(Q, torch.tensor([[2], [1]]), ONE).tolist() == [2.0, -1.0]
    assert chosen_value(BRANCHED, torch.tensor([[0, 2], [1, 1]]), TWO).tolist() == [7.0, -2.0]
    assert best_value(BRANCHED, None, TWO).tolist() == [9.0, 2.0]


def test_one_estimate_chooses_and_the_other_judges() -> None:
    online, target = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[5.0, 0.5, 1.0]])
    reward, going_on = torch.tensor([1.0]), torch.tensor([False])
    double = td_targets(reward, 0.95, double_q_value(online, target, None, ONE), going_on)
    plain = td_targets(reward, 0.95, best_value(target, None, ONE), going_on)
    assert double.item() == pytest.approx(1.475)  # 1 + 0.95 · ½
    assert plain.item() == pytest.approx(5.75)  # 1 + 0.95 · 5
    allowed = torch.tensor([[True, False, True]])
    assert double_q_value(online, target, allowed, ONE).item() == 1.0


def test_advantage_learning_widens_gaps_and_leaves_the_best_where_it_is() -> None:
    targets, best = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0])
    chosen = torch.tensor([2.0, -1.0])
    assert advantage_targets(targets, best, chosen, 0.5).tolist() == [1.0, -0.5]
    worth = torch.tensor([3.0, 2.5, 1.0])
    q = torch.zeros(3)
    for _ in range(200):
        q = advantage_targets(worth, q.max(), q, 0.9)
    # Ten times 0, 0.5 and 2 below the best.
    assert q.tolist() == pytest.approx([3.0, -2.0, -17.0], abs=1e-4)


def test_nothing_follows_a_termination_not_even_what_is_no_number() -> None:
    rewards, terminated = torch.tensor([1.0, 1.0]), torch.tensor([True, False])
    found = td_targets(rewards, torch.tensor([0.5, 0.25]), torch.tensor([torch.nan, 8.0]), terminated)
    assert found.tolist() == [1.0, 3.0]


def test_errors_count_by_their_weights() -> None:
    errors = torch.tensor([1.0, -2.0, 3.0])
    assert td_loss(errors, None).item() == pytest.approx(14 / 3)
    assert td_loss(errors, torch.tensor([1.0, 0.5, 0.0])).item() == pytest.approx(1.0)


def test_exploration_is_uniform_over_what_is_allowed() -> None:
    allowed = torch.tensor([True, True, True, False, True]).repeat(60_000, 1)
    drawn = random_choices(allowed, TWO, chance())
    first, second = (torch.bincount(branch, minlength=3).tolist() for branch in drawn.T)
    assert second[1] == 0
    # Deviations are 122 around 30 000.
    assert first[:2] == pytest.approx([30_000, 30_000], abs=700)
    assert [second[0], second[2]] == pytest.approx([30_000, 30_000], abs=700)


def test_every_agent_tosses_a_coin_of_its_own() -> None:
    actions = torch.full((50_000, 1), 2)
    allowed = torch.ones((50_000, 3), dtype=torch.bool)
    chosen = exploring(actions, allowed, 0.3, chance(), ONE)
    # 0.7 + 0.3/3 keep it; the deviation is 0.0018.
    assert (chosen == 2).float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert torch.equal(exploring(actions, allowed, 0.0, chance(), ONE), actions)
    assert (exploring(actions, allowed, 1.0, chance(), ONE) == 2).float().mean().item() == pytest.approx(
        1 / 3, abs=0.02
    )


def test_whatever_epsilon_is_the_stream_moves_on_alike() -> None:
    streams = [chance(), chance()]
    actions, allowed = torch.zeros((7, 2), dtype=torch.int64), torch.ones((7, 5), dtype=torch.bool)
    for epsilon, stream in zip((0.0, 1.0), streams, strict=True):
        exploring(actions, allowed, epsilon, stream, TWO)
    assert torch.equal(streams[0].get_state(), streams[1].get_state())


def test_dueling_values_average_to_the_state_s() -> None:
    value, advantages = torch.tensor([[10.0]]), torch.tensor([[1.0, 2.0, 6.0]])
    assert dueling(value, advantages, ONE).tolist() == [[8.0, 9.0, 13.0]]
    both = dueling(value, torch.tensor([[1.0, 3.0, 1.0, 2.0, 6.0]]), TWO)
    assert both.tolist() == [[4.0, 6.0, 3.0, 4.0, 8.0]]
    means = [part.mean().item() for part in both.split(TWO, dim=-1)]
    assert sum(means) == pytest.approx(10.0)
