from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainer_service.config import load_run_options

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_bundled_configuration_loads_without_warnings_and_can_run(path: Path) -> None:
    loaded = load_run_options(path)
    assert loaded.warnings == ()
    assert loaded.options.behaviors or loaded.options.default_settings


def test_there_is_a_configuration_for_each_bundled_task() -> None:
    assert {"3dball", "basic", "hybrid", "cartpole", "pendulum"} <= {path.stem for path in CONFIGS}


@pytest.mark.process
def test_reading_a_configuration_needs_no_torch() -> None:
    program = "import sys, trainer_service.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
