"""The distribution in examples/stats_writers: its own tests pass, and runs without it say what it is for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed_plugins import STATS_WRITERS, install, install_example

WRITER = {"mlagents.stats_writer": {"board": "board:make"}}


@pytest.mark.thorough
@pytest.mark.process
def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    install_example(site, STATS_WRITERS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(STATS_WRITERS / "tests")],
        capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_writers_without_the_plugin_are_named_once(
    site: Path, mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    install(site, "boards", WRITER, {"board.py": "raise SystemExit('imported')"})
    configure("Basic", max_steps=100)
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--run-id=a")
    assert said.code == 0, said.err
    assert said.out.count("examples/stats_writers") == 1
    assert "stats writer 'board' of boards 0.1.0: written for ML-Agents, gets no summaries" in said.out
    assert "docs/tracking.md" in said.out
