"""The count of what runs in a tick and in an update, so that layers do not grow back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PLAIN = {"tick": (38, 180), "update": (25, 92)}
"""Files and functions of PPO without fast paths, with a few functions to spare. Fewer are welcome: lower it."""
USUAL = {"tick": (28, 139)}
"""The same with them. The update's depend on whether the machine has a C compiler."""


@pytest.mark.process
@pytest.mark.parametrize(("flags", "most"), [(["--plain"], PLAIN), ([], USUAL)], ids=["plain", "usual"])
def test_a_tick_and_an_update_of_ppo_pass_through_few_files_and_functions(
    tmp_path: Path, flags: Sequence[str], most: Mapping[str, tuple[int, int]]
) -> None:
    tool = REPOSITORY / "tools" / "trace_paths.py"
    config = REPOSITORY / "configs" / "basic.yaml"
    line = [sys.executable, str(tool), str(config), "--env=sim:basic", "--files", *flags]
    run = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for name, (files, functions) in most.items():
        found = re.search(rf"^{name} +(\d+) files +(\d+) functions", run.stdout, re.MULTILINE)
        assert found is not None, run.stdout
        assert 10 < int(found[1]) <= files, run.stdout
        assert 10 < int(found[2]) <= functions, run.stdout
    assert "  trainer_service/learning/algorithms/on_policy/ppo.py\n" in run.stdout
