from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    EnvironmentParameterMessage,
    FloatParameter,
    GaussianSampler,
    MultiRangeUniformSampler,
    UniformSampler,
)
from unity_bridge.simulators.parameters import EnvironmentParameters

MANY = 20_000


def read(message: EnvironmentParameterMessage, count: int = MANY) -> np.ndarray:
    parameters = EnvironmentParameters()
    parameters.set(message)
    return parameters.read(message.name, -1.0, count)


def test_numbers_stay_until_the_next_one_arrives() -> None:
    parameters = EnvironmentParameters()
    parameters.set(FloatParameter("height", 4))
    assert parameters.read("height", 2.5, 2).tolist() == [4, 4]
    parameters.set(FloatParameter("height", 5))
    assert parameters.read("height", 2.5, 2).tolist() == [5, 5]
    assert parameters.read("width", 2.5, 1).tolist() == [2.5]


def test_a_uniform_sampler_covers_its_range_evenly() -> None:
    drawn = read(UniformSampler("height", 3, -1.0, 3.0))
    assert -1 <= drawn.min() < -0.99
    assert 2.99 < drawn.max() <= 3
    share, _ = np.histogram(drawn, 4, (-1, 3))
    np.testing.assert_allclose(share / MANY, 0.25, atol=0.02)


def test_a_gaussian_sampler_has_its_moments() -> None:
    drawn = read(GaussianSampler("height", 3, 5.0, 0.5))
    assert drawn.mean() == pytest.approx(5, abs=0.02)
    assert drawn.std() == pytest.approx(0.5, abs=0.02)


def test_intervals_are_as_likely_as_they_are_long() -> None:
    drawn = read(MultiRangeUniformSampler("height", 3, ((0.0, 1.0), (10.0, 13.0), (20.0, 20.0))))
    short, long = drawn < 5, (drawn >= 10) & (drawn <= 13)
    assert (short | long).all()
    assert short.mean() == pytest.approx(0.25, abs=0.02)
    assert drawn[short].mean() == pytest.approx(0.5, abs=0.02)
    assert drawn[long].mean() == pytest.approx(11.5, abs=0.03)


def test_a_sampler_without_intervals_is_refused() -> None:
    with pytest.raises(WireError, match=r"environment parameter 'height': expected intervals .* got none"):
        EnvironmentParameters().set(MultiRangeUniformSampler("height", 3, ()))


SAMPLERS = [
    lambda seed: UniformSampler("height", seed, 0.0, 1.0),
    lambda seed: GaussianSampler("height", seed, 0.0, 1.0),
    lambda seed: MultiRangeUniformSampler("height", seed, ((0.0, 1.0), (2.0, 3.0))),
]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_draw_at_every_reading_from_their_seed(sampler) -> None:
    def twice(seed: int) -> list[float]:
        parameters = EnvironmentParameters()
        parameters.set(sampler(seed))
        return [*parameters.read("height", 0, 2), *parameters.read("height", 0, 2)]

    assert len(set(twice(7))) == 4
    assert twice(7) == twice(7)
    assert twice(7) != twice(8)
    assert twice(-1) != twice(1)


def test_fixed_parameters_stay() -> None:
    parameters = EnvironmentParameters({"height": 6})
    parameters.set(FloatParameter("height", 4))
    parameters.set(FloatParameter("width", 4))
    assert parameters.read("height", 2.5, 1).tolist() == [6]
    assert parameters.read("width", 2.5, 1).tolist() == [4]
