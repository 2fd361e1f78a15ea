"""Normalization between sensors and networks."""

from __future__ import annotations

import torch

from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from unity_bridge.specs import ObservationSpec

SENSORS = (ObservationSpec("wide", (2,)), ObservationSpec("narrow", (1,)))


def seen(rows: int, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(rows, 2, generator=generator) * torch.tensor([100.0, 0.01]) + 50.0
    return [wide, torch.randn(rows, 1, generator=generator) - 3.0]


def test_every_feature_of_every_sensor_comes_to_the_same_scale() -> None:
    normalizer = ObservationNormalizer(SENSORS, normalize=True)
    for part in range(20):
        normalizer.update(seen(500, seed=part))
    for sensor in normalizer(seen(5000, seed=99)):
        for feature in sensor.T:
            assert abs(feature.mean()) < 0.1
    # The pseudo-row that comes before any data (mean 0) still weighs in the feature that hardly varies.
    wide, narrow = normalizer(seen(5000, seed=99))
    assert 0.9 < wide[:, 0].std() < 1.1
    assert 0.9 < narrow.std() < 1.1


def test_outliers_end_at_five() -> None:
    normalizer = ObservationNormalizer(SENSORS, normalize=True)
    normalizer.update(seen(100))
    wide, _ = normalizer([torch.tensor([[1e9, -1e9]]), torch.zeros(1, 1)])
    assert wide.tolist() == [[5.0, -5.0]]


def test_a_feature_that_never_changes_is_no_danger() -> None:
    normalizer = ObservationNormalizer(SENSORS[1:], normalize=True)
    for _ in range(100):
        normalizer.update([torch.full((1000, 1), 7.0)])
    (result,) = normalizer([torch.tensor([[7.0], [7.1]])])
    assert torch.isfinite(result).all()
    assert result.abs().max() <= 5.0


def test_where_nothing_is_normalized_nothing_is_touched() -> None:
    normalizer = ObservationNormalizer(SENSORS, normalize=False)
    normalizer.update(seen(10))
    given = seen(5)
    assert all(ours is theirs for ours, theirs in zip(normalizer(given), given, strict=True))
    assert normalizer.state_dict() == {}
