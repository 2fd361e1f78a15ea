"""Communication beside numbers worked by hand."""

from __future__ import annotations

import pytest
import torch

from trainer_service.ops.communication import consensus, disagreement, own_first, ring_mixing

SIZES = [1, 2, 3, 4, 8]


@pytest.mark.parametrize(
    ("start", "in_turn", "expected"),
    [
        ([0.0, 1.0, 2.0], False, [1.0625, 0.9375, 1.0]),
        ([0.0, 1.0, 2.0], True, [1.21875, 1.203125, 1.1875]),
        ([0.0, 1.0, 2.0, 3.0], True, [1.78125, 1.90625, 1.59375, 1.609375]),
    ],
)
def test_four_rounds_of_the_ring(start: list[float], in_turn: bool, expected: list[float]) -> None:
    mixed = ring_mixing(len(start), 4, in_turn=in_turn) @ torch.tensor(start)
    assert mixed.tolist() == expected


@pytest.mark.parametrize("agents", SIZES)
def test_all_at_once_keeps_the_mean_and_treats_all_alike(agents: int) -> None:
    mixing = ring_mixing(agents, 4, in_turn=False)
    assert mixing.sum(dim=0).tolist() == [1.0] * agents
    assert torch.equal(mixing.roll((1, 1), dims=(0, 1)), mixing)


@pytest.mark.parametrize("agents", [3, 4, 8])
def test_in_turn_does_not(agents: int) -> None:
    mixing = ring_mixing(agents, 4, in_turn=True)
    assert mixing.sum(dim=1).tolist() == [1.0] * agents
    assert mixing.sum(dim=0).tolist() != [1.0] * agents
    assert not torch.equal(mixing.roll((1, 1), dims=(0, 1)), mixing)


def test_everyone_reads_its_own_message_first() -> None:
    assert own_first(1).tolist() == [[0]]
    assert own_first(3).tolist() == [[0, 1, 2], [1, 0, 2], [2, 0, 1]]
    assert own_first(4)[2].tolist() == [2, 0, 1, 3]


def test_disagreement_is_the_mean_distance_of_two() -> None:
    heads = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    assert float(disagreement(heads)) == pytest.approx((5 + 0 + 5) / 3)
    assert float(disagreement(heads[:1])) == 0.0


@pytest.mark.parametrize("agents", SIZES)
def test_consensus_leaves_no_bit_of_difference(agents: int) -> None:
    heads = torch.randn(agents, 3, 5, generator=torch.Generator().manual_seed(agents))
    agreed = consensus(heads)
    torch.testing.assert_close(agreed[0], heads.sum(dim=0) / agents)
    assert all(torch.equal(head, agreed[0]) for head in agreed)
    assert float(disagreement(agreed)) == 0.0
