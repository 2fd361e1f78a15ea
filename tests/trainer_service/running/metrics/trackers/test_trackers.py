import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer_service.config import parse_run_options
from trainer_service.config.run.tracking import SUMMARY_WRITERS
from trainer_service.errors import ConfigError, UserError
from trainer_service.running.metrics import EpisodeStats, Series, Summary, SummaryWriter
from trainer_service.running.metrics.trackers import TrackedRun, make_trackers, require_package, scalars


class Plain(SummaryWriter):
    made_of: TrackedRun


def make_plain(run: TrackedRun) -> SummaryWriter:
    Plain.made_of = run
    return Plain()


def options(tmp_path: Path, **more: Any) -> Any:
    return parse_run_options(
        {
            "behaviors": {"Ball": {"trainer_type": "ppo", "max_steps": 7}},
            "checkpoint_settings": {"results_dir": str(tmp_path), "run_id": "fast", **more},
            "track": ["plain", "plain"],
        }
    ).options


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUMMARY_WRITERS, "plain", f"{__name__}:make_plain")


def test_a_tracker_is_told_of_its_run_and_made_once(tmp_path: Path) -> None:
    assert len(make_trackers(options(tmp_path))) == 1
    run = Plain.made_of
    assert (run.run_id, run.folder, run.is_resumed) == ("fast", tmp_path / "fast", False)
    assert run.configuration["behaviors"]["Ball"]["max_steps"] == 7
    assert not run.folder.exists()


def test_what_is_remembered_comes_back_to_a_resumed_run_only(tmp_path: Path) -> None:
    make_trackers(options(tmp_path))
    assert Plain.made_of.recall() == {}
    Plain.made_of.remember(id="abc", number=3)
    assert Plain.made_of.recall() == {}
    make_trackers(options(tmp_path, resume=True))
    assert Plain.made_of.recall() == {"id": "abc", "number": 3}


def test_an_unknown_tracker_is_answered_with_those_that_exist_and_their_extras() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_run_options({"track": ["aim"]})
    for name in ("mlflow", "trackio", "wandb"):
        assert re.search(rf"one of .*{name}.* got 'aim'", str(refusal.value))
    assert 'pip install -e ".[mlflow,trackio,wandb]"' in str(refusal.value)


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(UserError, match=r'pip install -e "\.\[wandb\]"'):
        require_package("no_such_package", "wandb")


def test_scalars_have_tensorboards_tags_under_the_behaviors_name() -> None:
    reported = Summary(
        behavior="Ball",
        step=10,
        wall_s=1.0,
        steps_per_s=1.0,
        stats=EpisodeStats(np.array([1.0, 5.0]), np.array([4.0, 6.0])),
        series={
            "Losses/Policy Loss": Series(1.5, 3),
            "Goals": Series(6.0, 2, is_sum=True),
            "Broken": Series.of(math.nan),
            "Endless": Series.of(math.inf),
        },
    )
    assert scalars(reported) == {
        "Ball/Environment/Cumulative Reward": 3.0,
        "Ball/Environment/Episode Length": 5.0,
        "Ball/Losses/Policy Loss": 0.5,
        "Ball/Goals": 6.0,
    }
