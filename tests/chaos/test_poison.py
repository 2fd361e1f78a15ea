"""Numbers that cannot be learned from, and agents that vanish without an end."""

from __future__ import annotations

import random
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from fault_counts import fault_counts
from mutations import conversation
from processes import free_port, small_settings, steps, write_configuration
from raw_clients import first_refusal

from trainer_service.running.runs.checkpoint import read_content

MIB = 1 << 20
POISONED = Path(__file__).parents[1] / "programs" / "poisoned.py"


def not_finite(folder: Path) -> int:
    """Numbers in the newest checkpoint that are none, or so large that no network survives them."""
    (path,) = folder.rglob("checkpoint.safetensors")
    found = 0
    pending = [read_content(path)]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            found += int((~value.isfinite() | (value.abs() > 1e9)).sum())
    return found


POISONS = {
    "NaN": "nan",
    "infinity": "inf",
    "rewards of 1e30": "reward=1e30",
    "observations of 1e18": "observation=1e18",
    "observations of 3e38": "observation=3e38",
}


@pytest.mark.thorough
@pytest.mark.parametrize("poison", POISONS)
@fault_counts(4000, 1_000_000, minutes=60)
def test_a_simulator_that_sends_poison(scene, note, poison: str, count: int) -> None:
    """One number in ten thousand (in CI in a thousand) is replaced: the run completes, and its weights are sound."""
    kind, share = POISONS[poison], 1e-4 if count > 100_000 else 1e-3
    settings = small_settings(max_steps=count, summary_freq=max(1200, count // 20), checkpoint_interval=count)
    settings["network_settings"]["normalize"] = True
    write_configuration(scene.folder, {"3DBall": settings})
    program = scene.folder / "poisoned.sh"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, str(POISONED), kind, str(share), "1"])} "$@"\n'
    )
    program.chmod(0o755)
    run = scene.learn(f"--env={program}", "--seed=1")
    code = run.end(3000)
    log = (scene.folder / "results/ppo/run_logs/Player-0.log").read_text().split()
    replaced = int(log[-1]) if log and log[-1].isdecimal() else -1
    restarts = run.output.count("starting it again")
    output = [line for line in run.output.splitlines() if "[WARNING]" in line]
    spoilt = not_finite(scene.folder)
    note(
        f"{poison}, one number in {1 / share:.0f}",
        f"{count} agent steps, {replaced} numbers replaced",
        f"exit code {code} at step {max(steps(run.output), default=0)}; {restarts} restarts; {spoilt} spoilt weights; "
        f"{len(output)} warnings; last mean reward {mean_reward(run.output)}",
    )
    assert code == 0, run.output[-3000:]
    assert spoilt == 0
    assert restarts == 0
    if replaced:
        assert output


def mean_reward(output: str) -> str:
    found = re.findall(r"Mean Reward: (-?\d+\.\d+)", output)
    return found[-1] if found else "none"


@pytest.mark.thorough
def test_a_visitor_that_left_keeps_no_run_from_its_end(scene, note) -> None:
    settings = small_settings(max_steps=4000)
    write_configuration(scene.folder, {}, default_settings=settings)
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1", "--timeout-wait=3")
    run.wait_for_output("Listening on port")
    witness = scene.healthy(port)
    run.wait_for_output("Connected new brain: 3DBall")
    first_refusal(port, conversation(random.Random(1), "Other")[:3])
    try:
        code: int | None = run.end(60)
    except AssertionError:
        code = None
    note(
        "a visitor declares a behavior and leaves",
        "1",
        f"exit code {code} at step {max(steps(run.output), default=0)} of 4000",
    )
    assert code == 0, run.output[-1500:]
    assert witness.end() in (0, 4)
