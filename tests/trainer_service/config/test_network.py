"""Sizes of networks that no machine can hold."""

import pytest
from pydantic import ValidationError

from trainer_service.config.network import NetworkSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_units": 10**12}, "hidden_units\n  expected at most 32768, which"),
        (
            {"hidden_units": 32_768, "num_layers": 3},
            "num_layers\n  expected at most 2 beside hidden_units: 32768",
        ),
        ({"num_layers": 10**9}, "num_layers\n  expected at most 1000 beside hidden_units: 128"),
        ({"memory": {"memory_size": 10**12}}, "memory.memory_size\n  expected at most 32768"),
    ],
)
def test_sizes_beyond_any_memory_are_refused_by_their_key(settings, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        NetworkSettings.model_validate(settings)
    assert message in str(refused.value)


def test_the_largest_sizes_are_taken() -> None:
    sizes = {"hidden_units": 32_768, "num_layers": 2, "memory": {"memory_size": 32_768}}
    assert NetworkSettings.model_validate(sizes).num_layers == 2
