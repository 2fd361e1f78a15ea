"""Runs on the treadmill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

EPISODE = 18


@pytest.fixture
def train(mlagents_style, hosted, configure) -> Callable[..., Any]:
    """Trains on the treadmill up to a step count, with an update after four episodes of its three agents.

    ``evaluation`` is the section of that name.
    """

    def run(
        run_id: str, max_steps: int, *flags: str, evaluation: dict[str, Any] | None = None, **settings: Any
    ) -> Any:
        hyper = {"batch_size": 32, "buffer_size": 4 * EPISODE, "learning_rate": 0.01}
        given = {
            "hyperparameters": {**hyper, "learning_rate_schedule": "constant"},
            "network_settings": {"normalize": True, "hidden_units": 8, "num_layers": 1},
            "max_steps": max_steps,
            "summary_freq": EPISODE,
            "checkpoint_interval": 1000,
            **settings,
        }
        path = configure("Treadmill", **given)
        if evaluation is not None:
            path.write_text(path.read_text() + yaml.safe_dump({"evaluation": evaluation}))
        said = mlagents_style("learn", path, f"--run-id={run_id}", "--seed=5", *flags, *hosted("treadmill"))
        assert said.code == 0, said.err
        return said

    return run
