"""The distribution in examples/stats_writers: its own tests pass, and runs without it say what it is for."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed_plugins import STATS_WRITERS, install, install_example

from trainer_service.callbacks import load_callback
from trainer_service.config import parse_run_options, refused_plugins
from trainer_service.errors import UserError

MOVED = "trainer_service.published_names:PublishedNames"
WRITER = {"mlagents.stats_writer": {"board": "board:make"}}


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


@pytest.mark.parametrize("section", [{"track": ["mlagents"]}, {"checkpoint_settings": {"inference": True}}])
def test_a_run_that_needs_no_hint_gets_none(site: Path, section: dict[str, Any]) -> None:
    install_example(site, STATS_WRITERS)
    install(site, "boards", WRITER)
    assert refused_plugins(parse_run_options(section).options) == []


def test_a_run_that_used_a_writer_before_goes_on_without_the_plugin() -> None:
    options = parse_run_options({"plugins": {"stats_writer.board": "boards 0.1.0"}}).options
    assert refused_plugins(options) == []


def test_the_earlier_name_of_published_names_leads_to_the_plugin(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match="Install examples/stats_writers and write --hooks published_names"):
        load_callback(MOVED)
    install_example(site, STATS_WRITERS)
    with caplog.at_level(logging.WARNING):
        assert type(load_callback(MOVED)).__name__ == "PublishedNames"
    assert "deprecated, write --hooks published_names" in caplog.text
