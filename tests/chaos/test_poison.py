"""Numbers that cannot be learned from, and agents that vanish without an end."""

from __future__ import annotations

import random
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from fault_counts import fault_counts
from mutations import conversation
from processes import free_port, small_settings, steps, write_configuration
from raw_clients import RawClient, first_refusal

from trainer_service.running.runs.checkpoint import read_content
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

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


@fault_counts(None, 1_000_000, minutes=60)
def test_agents_that_vanish(arena, note, count: int) -> None:
    """``count`` ids of agents that speak twice and are never heard of again, fifty new ones with each message."""
    message = UnityMessageProto.FromString(conversation(random.Random(2), "3DBall?team=0")[2])
    rows = message.unity_output.rl_output.agentInfos["3DBall?team=0"].value
    del rows[1:]
    row = rows.pop()
    half = 0
    began = time.monotonic()
    with RawClient(arena.port) as caller:
        for greeting in conversation(random.Random(2), "3DBall?team=0")[:2]:
            caller.say(greeting)
        for first in range(0, count, 50):
            del rows[:]
            for agent in range(first, first + 100):
                row.id = agent
                rows.append(row)
            caller.say(message.SerializeToString())
            if first == count * 3 // 4:
                half = arena.trainer.memory()
    grown = (arena.trainer.memory() - half) / MIB
    waited = arena.witness.longest_wait(began)
    note(
        "agents that vanish without a word",
        f"{count} ids",
        f"{grown:+.0f} MB with the last quarter of them ({grown * MIB / (count / 4):.0f} bytes an id); "
        f"the healthy one waited {waited:.2f} s at most",
    )
    arena.require_peace()
    assert grown < 30


@pytest.mark.chaos
@pytest.mark.parametrize("stranger", ["Other", "3DBall?team=99999999999999999999"])
def test_the_first_to_come_cannot_end_a_run(scene, note, stranger: str) -> None:
    write_configuration(scene.folder, {"3DBall": small_settings()})
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1")
    run.wait_for_output("Listening on port")
    heard = first_refusal(port, conversation(random.Random(1), stranger)[:3])
    scene.healthy(port).go_on()
    note(
        f"the first to come declares `{stranger[:12]}`",
        "1",
        f"refused: {heard is not None}; the run continues",
    )
    assert heard is not None
    assert run.poll() is None


@pytest.mark.chaos
def test_behaviors_that_a_visitor_declares(scene, note) -> None:
    """Behaviors that only a visitor declares delay neither other simulators nor the end of the run."""
    settings = small_settings(max_steps=100_000)
    write_configuration(scene.folder, {}, default_settings=settings)
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1")
    run.wait_for_output("Listening on port")
    witness = scene.healthy(port, pause_s=0.001)
    witness.go_on()
    refused, began = 0, time.monotonic()
    for number in range(140):
        refused += first_refusal(port, conversation(random.Random(1), f"Other{number}")[:3]) is not None
        if run.poll() is not None:
            break
    waited = witness.longest_wait(began)
    if run.poll() is None:
        witness.go_on()
    run.signal(signal.SIGTERM)
    asked = time.monotonic()
    code = run.end(120)
    note(
        "behaviors that a visitor declares, with default settings",
        "140",
        f"{refused} refused; the healthy one waited {waited:.2f} s at most; exit code {code}, "
        f"{time.monotonic() - asked:.1f} s after SIGTERM",
    )
    assert code == 0
    assert waited < 10.0


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
