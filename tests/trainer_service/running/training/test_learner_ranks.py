"""How many learner ranks a run has, and what of the room for several processes a run of one learner loads: nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_service.config import RunOptions
from trainer_service.distributed.learners.ranks import learner_ranks
from trainer_service.errors import ConfigError
from trainer_service.running.training.learner_ranks import num_learners, resumed_after_restart, serves_rank_0


def options(**sections: Any) -> RunOptions:
    return RunOptions.model_validate(sections)


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environment of a process that torchrun started."""

    def start(rank: int, world: int, restarts: int = 0) -> None:
        given = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
        for name, value in {**given, "TORCHELASTIC_RESTART_COUNT": restarts}.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", "29500")

    return start


def test_one_learner_unless_told() -> None:
    assert num_learners(options()) == 1
    assert num_learners(options(distributed={"num_learners": 3})) == 3
    assert not serves_rank_0()
    inference = {"inference": True, "run_id": "a"}
    assert num_learners(options(distributed={"num_learners": 3}, checkpoint_settings=inference)) == 1


def test_torchrun_says_how_many(torchrun) -> None:
    torchrun(1, 2)
    assert num_learners(options()) == 2
    assert num_learners(options(distributed={"num_learners": 2})) == 2
    assert serves_rank_0()
    with pytest.raises(ConfigError, match=r"torchrun started 2 learner ranks .* the configuration has 3"):
        num_learners(options(distributed={"num_learners": 3}))


@pytest.mark.parametrize("saved", [True, False])
def test_a_restarted_run_goes_on_where_something_was_saved(torchrun, tmp_path: Path, saved: bool) -> None:
    given = options(
        checkpoint_settings={
            "run_id": "a",
            "results_dir": str(tmp_path),
            "initialize_from": "b",
            "force": saved,
        }
    )
    assert resumed_after_restart(given) == given
    torchrun(0, 2)
    assert resumed_after_restart(given) == given, "it was not restarted"
    torchrun(0, 2, restarts=1)
    if saved:
        (tmp_path / "a" / "Basic").mkdir(parents=True)
        (tmp_path / "a" / "Basic" / "checkpoint.safetensors").touch()
    settings = resumed_after_restart(given).checkpoint_settings
    assert (settings.resume, settings.force) == (saved, not saved)
    assert settings.initialize_from == (None if saved else "b")


@pytest.mark.parametrize("device", ["cuda:1", "mps", "meta"])
def test_devices_that_ranks_cannot_share_are_refused(device: str) -> None:
    asked = options(distributed={"num_learners": 2})
    with pytest.raises(ConfigError, match="learner ranks compute on 'cpu', or on 'cuda' with a GPU for each"):
        learner_ranks(asked, torch.device(device)).__enter__()


def test_ranks_without_a_gpu_each_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match="3 learner ranks of this machine need a GPU each, it has 2"):
        learner_ranks(options(distributed={"num_learners": 3}), torch.device("cuda")).__enter__()
