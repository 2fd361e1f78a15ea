"""A test cannot stand in a tier that is quicker than itself: tests/conftest.py sees what it does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import multiprocessing, subprocess, sys
import pytest, torch

def learn(passes):
    weight = torch.zeros(1, requires_grad=True)
    for _ in range(passes):
        weight.sum().backward()
        torch.autograd.backward([weight.sum()], [torch.ones(())])

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.fixture
def started(processes):
    start()

def test_little(): learn(150)
def test_learns(): learn(151)
def test_starts(): start()
def test_forks():
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
def test_leaves_it_to_a_fixture(started): pass
@pytest.mark.process
def test_starts_as_it_says(): start()
@pytest.mark.probe
def test_learns_as_it_says(): learn(151)
"""


@pytest.mark.process
def test_a_misplaced_unit_test_fails_and_names_its_mark(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    line = [sys.executable, "-m", "pytest", "-q", "-rA", "-n0", "-p", "no:cacheprovider", "--tb=line"]
    ran = subprocess.run([*line, "test_some.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    outcomes = {
        rest.partition("::")[2].split(" - ")[0].strip(): word
        for word, _, rest in (row.partition(" ") for row in ran.stdout.splitlines())
        if word in {"PASSED", "FAILED", "ERROR"}
    }
    assert outcomes == {
        "test_little": "PASSED",
        "test_learns": "FAILED",
        "test_starts": "FAILED",
        "test_forks": "FAILED",
        "test_leaves_it_to_a_fixture": "PASSED",
        "test_starts_as_it_says": "PASSED",
        "test_learns_as_it_says": "PASSED",
    }
    assert "it made 302 backward passes of at most 300: mark it probe" in ran.stdout
    assert "it started 1 processes: mark it process" in ran.stdout
