import pytest
import torch

from trainer_service.ops.normalization import Moments, initial_moments, updated_moments, without_outliers


def test_the_published_example() -> None:
    moments = updated_moments(initial_moments(1), torch.tensor([[2.0], [4.0], [6.0]]))
    assert [float(part) for part in moments] == [4, 3, 21]
    moments = updated_moments(moments, torch.tensor([[10.0]]))
    torch.testing.assert_close(
        torch.stack([part.reshape(()) for part in moments]), torch.tensor([5.0, 4.4, 60.2]).double()
    )


class TestOutliers:
    SCALES = torch.tensor([0.03, 1.0, 400.0], dtype=torch.float64)
    CENTRES = torch.tensor([0.0, -3.0, 5000.0], dtype=torch.float64)

    def ordinary(self, rows: int, seed: int = 0) -> torch.Tensor:
        noise = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return self.CENTRES + self.SCALES * noise

    def stream(self, *batches: torch.Tensor) -> Moments:
        moments = initial_moments(3)
        for rows in batches:
            moments = updated_moments(moments, without_outliers(moments, rows))
        return moments

    def spoiled(self, rows: int, value: float) -> torch.Tensor:
        """Ordinary rows, five of them out of all proportion."""
        batch = self.ordinary(rows, seed=1)
        batch[torch.arange(5) * (rows // 5)] = value
        return batch

    @pytest.mark.parametrize("batches", [[5, 300, 2000, 7, 64], [12_000, 12_000], [1] * 1200])
    def test_ordinary_rows_stay_as_they_are_bit_by_bit(self, batches: list[int]) -> None:
        moments = initial_moments(3)
        for seed, count in enumerate(batches):
            rows = self.ordinary(count, seed)
            assert without_outliers(moments, rows).equal(rows)
            moments = updated_moments(moments, rows)

    @pytest.mark.parametrize("value", [1e14, -1e15, 1e6])
    @pytest.mark.parametrize("before", [[1000], [400, 700], [10_000, 10_000], []])
    def test_a_few_leave_the_rest_in_sight(self, before: list[int], value: float) -> None:
        """Holds for a large first batch too. Deviations settle after a while: no blindness for good."""
        history = [self.ordinary(count, seed=10 + seed) for seed, count in enumerate(before)]
        moments = self.stream(*history, self.spoiled(2000, value), self.ordinary(100_000, seed=3))
        clean = self.stream(*history, self.ordinary(2000, seed=1), self.ordinary(100_000, seed=3))
        deviation = (moments.sum_squares / moments.rows).sqrt()
        usual = (clean.sum_squares / clean.rows).sqrt()
        assert ((moments.mean - clean.mean).abs() < 0.2 * usual + 0.02).all()
        assert (deviation < 4 * usual).all()

    def test_a_feature_that_was_constant_may_raise_a_flag(self) -> None:
        moments = self.stream(torch.zeros(100_000, 3, dtype=torch.float64))
        flags = torch.tensor([[1.0, -1.0, 10.0]], dtype=torch.float64)
        assert without_outliers(moments, flags).equal(flags)

    def test_a_feature_that_moves_away_for_good_is_followed(self) -> None:
        """A lesson in a world a million times as large."""
        moved = self.ordinary(2000) + 1e6
        moments = self.stream(self.ordinary(10_000), *[moved] * 200)
        clean = initial_moments(3)
        for rows in (self.ordinary(10_000), *[moved] * 200):
            clean = updated_moments(clean, rows)
        torch.testing.assert_close(moments.mean, clean.mean, rtol=0.05, atol=0)
        assert (moments.sum_squares > clean.sum_squares / 4).all()
