import torch

from trainer_service.ops.normalization import initial_moments, updated_moments


def test_the_published_example() -> None:
    moments = updated_moments(initial_moments(1), torch.tensor([[2.0], [4.0], [6.0]]))
    assert [float(part) for part in moments] == [4, 3, 21]
    moments = updated_moments(moments, torch.tensor([[10.0]]))
    torch.testing.assert_close(
        torch.stack([part.reshape(()) for part in moments]), torch.tensor([5.0, 4.4, 60.2]).double()
    )


def test_rows_at_once_equal_a_merge_of_their_exact_moments() -> None:
    rows = torch.randn(500, 3, dtype=torch.float64) * 7 + 2
    rows_seen, mean, sum_squares = updated_moments(initial_moments(3), rows)
    # The start is one pseudo-row at 0 with square 1.
    everything = torch.cat([torch.zeros(1, 3), rows])
    torch.testing.assert_close(mean, everything.mean(dim=0))
    torch.testing.assert_close(sum_squares, 1 + ((everything - mean) ** 2).sum(dim=0), rtol=1e-9, atol=1e-9)
    assert int(rows_seen) == 501
