"""The scripts of examples/ run with their defaults, and learn what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.process


def output_of(script: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    found = re.findall(pattern, text)
    assert found, text
    return [float(each) for each in found]


def test_every_script_is_tested_and_short() -> None:
    tested = set(re.findall(r'output_of\("([\w.]+)"', Path(__file__).read_text(encoding="utf-8")))
    scripts = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert set(scripts) == tested
    assert all(text.count("\n") < 60 for text in scripts.values())


def test_an_own_environment_is_solved(tmp_path: Path) -> None:
    said = output_of("own_environment.py", tmp_path)
    (steps,) = numbers(r"(\d+) steps, mean return", said)
    (score,) = numbers(r"mean return (-[\d.]+)", said)
    assert steps < 60_000
    assert score > -3.0


@pytest.mark.thorough
def test_an_own_encoder_sees_the_map(tmp_path: Path) -> None:
    (found,) = numbers(r"([\d.]+) mushrooms", output_of("own_encoder.py", tmp_path))
    assert found > 8.0
    assert (tmp_path / "results/forest/Forest.onnx").is_file()


def test_a_policy_balances_in_a_loop(tmp_path: Path) -> None:
    said = output_of("policy_in_a_loop.py", tmp_path)
    assert sum(numbers(r"episode with seed \d: (\d+)", said)) > 200
    assert "pushes to the right: [1, 0]" in said


@pytest.mark.thorough
def test_seeds_are_compared(tmp_path: Path) -> None:
    slow, fast = numbers(r"rate-[\d.]+: return ([\d.]+)", output_of("compare_seeds.py", tmp_path))
    assert fast > slow
