"""Lines of the log as JSON."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from trainer_service.errors import UserError
from trainer_service.running.metrics import ConsoleWriter, EpisodeStats, Series, Summary
from trainer_service.running.metrics.console import Console

LOGGER = logging.getLogger("trainer_service.running.training.learn")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_line_is_an_object_with_time_level_and_message() -> None:
    stream = io.StringIO()
    with Console(stream=stream, log_format="json"):
        LOGGER.warning("disk is\nnearly %s", "full")
    (line,) = lines(stream)
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "WARNING",
        "logger": "trainer_service.running.training.learn",
        "message": "disk is\nnearly full",
    }


def test_the_line_of_a_summary_has_its_metrics() -> None:
    stats = EpisodeStats(np.array([1.0, 5.0]), np.array([10.0, 30.0]))
    series = {
        "Policy/Entropy": Series.of(0.5),
        "Losses/Policy Loss": Series.of(float("nan")),
        "Policy/Range": Series.of_samples(np.array([1.0, 2.0])),
        "Goals_hist": Series.of(3.0),  # a simulator's name, and no histogram
    }
    summary = Summary(behavior="Ball", step=1000, wall_s=7.7, steps_per_s=130.0, stats=stats, series=series)
    stream = io.StringIO()
    with Console(stream=stream, log_format="json"):
        ConsoleWriter().write(summary)
    (line,) = lines(stream)
    assert line["message"].startswith("Ball. Step: 1000. ")
    metrics = line["metrics"]
    assert (metrics["behavior"], metrics["step"], metrics["mean_return"]) == ("Ball", 1000, 3.0)
    assert (metrics["entropy"], metrics["policy_loss"]) == (0.5, None)
    assert [key for key in metrics if key.endswith("_hist")] == ["Goals_hist"]


def test_no_control_character_reaches_a_json_line() -> None:
    stream = io.StringIO()
    with Console(stream=stream, log_format="json") as console:
        console.log("\x1b]0;title\x07\x9b2J\u2028Bäll")
    text = stream.getvalue()
    assert text.isascii()
    assert all(character.isprintable() for character in text.rstrip("\n"))
    assert "Bäll" in json.loads(text)["message"]


@pytest.mark.parametrize(
    ("error", "message", "has_traceback"),
    [
        (UserError("run id 'x' is taken"), "run id 'x' is taken", False),
        (ZeroDivisionError("unexpected"), "ZeroDivisionError: unexpected", True),
    ],
)
def test_the_error_that_ends_a_run_is_the_last_line(
    error: Exception, message: str, has_traceback: bool
) -> None:
    stream = io.StringIO()
    with pytest.raises(type(error)), Console(stream=stream, log_format="json"):
        raise error
    last = lines(stream)[-1]
    assert (last["level"], last["message"]) == ("ERROR", message)
    assert ("test_log_records.py" in last.get("traceback", "")) is has_traceback
