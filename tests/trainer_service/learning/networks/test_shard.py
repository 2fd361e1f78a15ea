"""Parts of minibatches, by numbers on paper, and the gradient that they add up to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainer_service.learning.networks.flat import FlatParameters
from trainer_service.learning.networks.shard import SINGLE_RANK, Part, Shard


class Rank(Shard):
    """A rank that adds up nothing: the test does."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world


class Summing(Rank):
    """A rank that adds to every sum what the others had there."""

    others: Tensor

    def add_up(self, tensor: Tensor) -> Tensor:
        return tensor.add_(self.others)


def test_seven_rows_of_three_ranks() -> None:
    parts = [Rank(rank, 3).part(7) for rank in range(3)]
    assert [list(range(7))[part.rows] for part in parts] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [part.share for part in parts] == [3 / 7, 2 / 7, 2 / 7]
    assert all(part.copies == 1 and part.count == 7 for part in parts)


def test_fewer_rows_than_ranks_are_computed_by_all() -> None:
    for rank in range(3):
        part = Rank(rank, 3).part(2)
        assert (part.rows, part.share, part.copies) == (slice(None), 1 / 3, 3)


def test_sequences_are_divided_whole() -> None:
    lengths = np.array([4, 1, 3, 2])
    found = [Rank(rank, 2).part_of_sequences(lengths) for rank in range(2)]
    assert [list(range(4))[sequences] for sequences, _ in found] == [[0, 2], [1, 3]]
    assert [np.arange(10)[part.rows].tolist() for _, part in found] == [[0, 1, 2, 3, 5, 6, 7], [4, 8, 9]]
    assert [part.share for _, part in found] == [0.7, 0.3]


def test_a_learner_alone_has_everything() -> None:
    assert SINGLE_RANK.part(5).rows == slice(None)
    assert SINGLE_RANK.part(5).share == 1.0
    assert SINGLE_RANK.add_up(torch.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_parts_of_the_gradient_add_up_to_all_of_it(rows: int) -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(rows, 3), torch.randn(rows, 2)
    expected = gradient(SINGLE_RANK, inputs, targets)
    addends = [gradient(Rank(rank, 3), inputs, targets) for rank in range(3)]
    torch.testing.assert_close(sum(addends), expected)


def gradient(shard: Shard, inputs: Tensor, targets: Tensor) -> Tensor:
    """The rank's addend of the gradient of a mean squared error."""
    torch.manual_seed(2)
    network = nn.Linear(3, 2)
    parameters, part = FlatParameters(network.parameters(), shard), shard.part(len(inputs))
    (network(inputs[part.rows]) - targets[part.rows]).square().mean().backward()
    parameters.reduce_gradient(part.share)
    return parameters.gradient.clone()


@pytest.mark.parametrize("kind", ["normal", "exponential"])
@pytest.mark.parametrize("transposed", [False, True])
def test_ranks_draw_what_one_learner_draws(kind: str, transposed: bool) -> None:
    def draw(shard: Shard) -> Tensor:
        part = shard.part(33)
        rows = len(range(33)[part.rows])
        like = torch.empty(4, rows, 5).transpose(0, 1) if transposed else torch.empty(rows, 4, 5)
        drawn: Tensor = getattr(shard, kind)(like, part, torch.Generator().manual_seed(3))
        return drawn

    whole = draw(SINGLE_RANK)
    for rank in range(2):
        assert torch.equal(draw(Rank(rank, 2)), whole[Rank(rank, 2).part(33).rows])


def test_draws_for_rows_that_come_twice() -> None:
    whole = SINGLE_RANK.normal(
        torch.empty(14, 3), SINGLE_RANK.part(7), torch.Generator().manual_seed(3), times=2
    )
    shard, rows = Rank(1, 2), [1, 3, 5]
    drawn = shard.normal(torch.empty(6, 3), shard.part(7), torch.Generator().manual_seed(3), times=2)
    assert torch.equal(drawn, torch.cat([whole[rows], whole[[7 + row for row in rows]]]))


def test_rows_of_all_ranks_come_back_in_their_order() -> None:
    shard = Summing(0, 2)
    shard.others = torch.tensor([0.0, 10.0, 0.0, 30.0, 0.0])
    assert shard.collected(torch.tensor([1.0, 3.0, 5.0]), shard.part(5)).tolist() == [
        1.0,
        10.0,
        3.0,
        30.0,
        5.0,
    ]
    own = torch.tensor([1.0])
    assert shard.collected(own, Part(slice(None), 1, 0.5, 2)) is own, "all ranks have it"
