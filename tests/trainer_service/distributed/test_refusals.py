"""What cannot work with rollout workers is refused by name, before a run has a folder; and a run without them has
nothing of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process_workers import SMALL_PPO, options_of

from trainer_service.commands.train.run import train
from trainer_service.config import RunOptions
from trainer_service.errors import UserError


def run_of(workplace: Path, **sections: Any) -> RunOptions:
    folder = {"checkpoint_settings": {"run_id": "run", "results_dir": str(workplace / "results")}}
    return options_of({"Basic": SMALL_PPO}, **folder, **sections)


def refused(options: RunOptions, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        train(options, **more)
    assert not Path(options.checkpoint_settings.results_dir).exists()
    return str(caught.value)


def test_simulators_that_attach_are_no_workers_own(workplace: Path) -> None:
    said = refused(run_of(workplace, env_settings={"env_path": None}))
    assert "distributed.num_workers: rollout workers start simulators themselves" in said
    assert "set env_settings.env_path (--env), or num_workers to 0" in said


def test_side_channels_of_users_have_no_simulators(workplace: Path) -> None:
    said = refused(run_of(workplace), side_channels=[object()])
    assert "distributed.num_workers: side channels of yours live in the trainer's process" in said


def test_windows_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert "need Linux or macOS: on Windows, Ray is not supported here" in refused(run_of(workplace))


def test_ray_that_is_missing_is_named(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert 'pip install -e ".[ray]"' in refused(run_of(workplace))


PROGRAM = """
import sys
from pathlib import Path
import trainer_service
from trainer_service.config import load_run_options

overrides = {
    "env_settings": {"env_path": "sim:basic"}, "checkpoint_settings": {"run_id": "run"},
    "evaluation": {"every_steps": 200, "episodes": 1},
}
for number, section in enumerate(("", "distributed: {num_workers: 0, num_learners: 1}\\n")):
    Path("sectioned.yaml").write_text(section + Path("config.yaml").read_text())
    overrides["checkpoint_settings"]["run_id"] = f"run{number}"
    trainer_service.train(load_run_options("sectioned.yaml", overrides).options)
unneeded = ("ray.", "trainer_service.distributed.", "torch._dynamo.")
print([name for name in sys.modules if f"{name}.".startswith(unneeded)])
import torch
assert not torch.distributed.is_initialized()
"""


@pytest.mark.thorough
@pytest.mark.process
def test_a_run_without_workers_and_ranks_loads_nothing_of_them_nor_torchs_compiler(
    configure,
) -> None:
    """The compiler takes a second to load, which a short run would notice."""
    config = configure("Basic", max_steps=300)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=config.parent, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
