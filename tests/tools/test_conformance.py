"""The tool finds the real ML-Agents, or says why there is none."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest


@pytest.mark.process
def test_the_page_names_every_check_with_its_cases(repository: Path) -> None:
    """The table of docs/conformance.md against what pytest collects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "tests/conformance"]
    collected = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    cases = Counter(re.findall(r"::(test_\w+)", collected))
    page = (repository / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(test_\w+)` \| (\d+) \|", page, re.MULTILINE)) == {
        name: str(number) for name, number in cases.items()
    }
    assert f"The {cases.total()} cases" in page
