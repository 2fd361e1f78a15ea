"""``trainer_service.train_population``: the arguments that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainer_service
from trainer_service.api.experiments.population import PopulationResult
from trainer_service.errors import ConfigError, UserError
from trainer_service.training.stop_signals import StopSignals

SPACE = {"behaviors.Basic.hyperparameters.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


def populate(stop: StopSignals | None = None, **settings: Any) -> PopulationResult:
    given = {
        "env": "sim:basic",
        "interval": 4000,
        "members": 3,
        "run_id": "p",
        "results_dir": Path("runs"),
        **settings,
    }
    return trainer_service.train_population("basic", SPACE, stop=stop, verbose=0, **given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 0}, "members: expected at least 1, got 0"),
        ({"interval": "often"}, "interval: expected a whole number, got 'often'"),
        ({"env": lambda: None}, "env: runs are trained in other processes"),
        ({"env": None}, "each member needs simulators of its own"),
        ({"jobs": 2, "base_port": 6000}, "expected none, as 2 members at a time cannot share a port"),
        ({"jobs": 0}, "--jobs: expected at least 1, got 0"),
    ],
)
def test_a_mistake_is_refused_by_name(workplace: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, UserError)) as refusal:
        populate(**settings)
    assert message in str(refusal.value)


def test_arguments_of_a_single_run_are_unknown() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'force'"):
        populate(force=True)


def test_a_stopped_population_is_resumed_with_equal_arguments(workplace: Path) -> None:
    with StopSignals() as stop:
        stop.request()
        first = populate(stop, env_args=("--agents", "2"))
        assert first.interrupted
        assert (first.best, first.schedule, first.scores) == (None, None, (None, None, None))
        assert first.folder == Path("runs/p")
        again = populate(stop, env_args=["--agents", "2"], resume=True)
        assert again.interrupted
        with pytest.raises(UserError, match="began with another configuration"):
            populate(stop, resume=True)
