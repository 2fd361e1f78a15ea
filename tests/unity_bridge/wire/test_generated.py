"""The checked-in modules are what the .proto files say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.network
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_generating_them_again_changes_nothing() -> None:
    command = [sys.executable, str(REPOSITORY / "tools" / "regenerate_wire.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "CalledProcessError" in done.stderr and "pip" in done.stderr:
        pytest.skip(f"the compiler cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
