"""Disks that are full or read-only, at the start, in the middle and at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Process, small_settings, write_configuration

from trainer_service.running.interop.mlagents_checkpoint import load_source

FLAGS = ("--env=sim:basic", "--seed=1", "--results-dir=disk")


@pytest.fixture
def disk(scene) -> Iterator[Path]:
    """A disk of 8 MB, where we may mount one."""
    path = scene.folder / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    if os.geteuid() or shutil.which("mount") is None or not works(mount):
        pytest.skip("mounting a small disk takes root")
    write_configuration(
        scene.folder, {"Basic": small_settings(checkpoint_interval=300, summary_freq=100, keep_checkpoints=2)}
    )
    yield path
    scene.end()
    subprocess.run(["umount", "-l", str(path)], check=True)


def works(line: list[str]) -> bool:
    return not subprocess.run(line, check=False, capture_output=True).returncode


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb") as file:
        try:
            while file.write(bytes(1 << 16)):
                file.flush()
        except OSError:
            pass


def newest(disk: Path) -> int:
    path = disk / "ppo" / "Basic" / "checkpoint.safetensors"
    return int(load_source(path).step)  # type: ignore[union-attr]


def require_one_message(run: Process) -> None:
    assert "Traceback" not in run.output, run.output
    assert "No space left on device" in run.output or "Read-only" in run.output


def test_a_disk_that_is_full_at_the_start(scene, disk: Path, note) -> None:
    fill(disk)
    run = scene.learn(*FLAGS)
    code = run.end()
    note(
        "disk full at the start", "8 MB tmpfs", f"exit code {code}, one message; {len(run.orphans())} orphans"
    )
    assert code == 2, run.output
    require_one_message(run)
    assert not run.orphans()


def test_a_disk_full_in_the_middle_and_at_the_end(scene, disk: Path, note) -> None:
    run = scene.learn(*FLAGS)
    run.wait_for_output("Saved ")
    fill(disk)
    run.wait_for_output("The run continues", timeout_s=120)
    run.wait_for_output("Step: ", times=run.output.count("Step: ") + 3)
    before = newest(disk)
    run.signal(signal.SIGTERM)
    code = run.end()
    kept = newest(disk)
    (disk / "filler").unlink()
    again = scene.learn(*FLAGS, "--resume")
    again.wait_for_output("Saved ")
    note(
        "disk full in the middle, and still at the end",
        "8 MB tmpfs, SIGTERM",
        f"{run.output.count('The run continues')} warning, summaries go on; exit code {code} with path and reason; "
        f"the checkpoint of step {kept} is whole, and `--resume` goes on when there is room",
    )
    assert before == kept
    assert code != 0
    require_one_message(run)
    assert f"Resuming 'Basic' from step {kept}" in again.output
