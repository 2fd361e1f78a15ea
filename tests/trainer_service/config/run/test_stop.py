from typing import Any

import pytest
import yaml

from trainer_service.config import dump_run_options, parse_run_options
from trainer_service.config.run.stop import StopSettings
from trainer_service.errors import ConfigError


def stop(**settings: Any) -> StopSettings:
    options = parse_run_options({"behaviors": {"A": {}, "B": {}}, "stop": settings}).options
    assert options.stop is not None
    return options.stop


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("2h", 7200), ("90min", 5400), ("90 m", 5400), ("1h 30min", 5400), ("1.5h", 5400), ("1d2h3m4s", 93784),
     ("45", 45), (45, 45), (0.5, 0.5)],
)  # fmt: skip
def test_durations_are_read_in_all_units(written: object, seconds: float) -> None:
    assert stop(wall_clock=written).wall_clock == seconds


@pytest.mark.parametrize("written", ["2 weeks", "h", "", "-2h", "0", 0, -1, True, [1], "2h nonsense"])
def test_other_durations_are_refused(written: object) -> None:
    with pytest.raises(ConfigError, match=r"stop\.wall_clock: expected a duration such as 2h"):
        stop(wall_clock=written)


def test_a_target_is_for_all_or_for_those_that_are_named() -> None:
    assert stop(target_return="195").target_return == 195.0
    assert stop(target_return={"A": 1, "B": "2e1"}).target_return == {"A": 1.0, "B": 20.0}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("high", "stop.target_return: expected a number, got 'high'"),
        ({"A": None}, "stop.target_return.A: expected a number, got nothing"),
        ({}, "stop.target_return: expected a number, or a number for each of some behaviors, got a mapping"),
        ({"C": 1}, "stop.target_return.C: expected a behavior that is listed, which are 'A', 'B', got 'C'"),
    ],
)
def test_other_targets_are_refused(target: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        stop(target_return=target)
    assert message in str(refused.value)


def test_rules_are_written_as_they_are_read() -> None:
    options = parse_run_options(
        {"stop": {"wall_clock": "1h", "no_progress": "1e3", "target_return": 2}}
    ).options
    again = parse_run_options(yaml.safe_load(dump_run_options(options))).options
    assert again == options
