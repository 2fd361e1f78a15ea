"""A run that goes on while visitors come and go: it must not grow."""

from __future__ import annotations

import random
import time

from fault_counts import fault_counts
from mutations import conversation, mutated_message
from processes import free_port, small_settings, wait_until, write_configuration
from raw_clients import RawClient, Refused

from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

MIB = 1 << 20
AGENTS = 75
"""Of each visitor."""
WARM_UP = 1 / 3
"""The part of the time whose growth does not count."""


def visit(port: int, dice: random.Random, first_agent: int) -> int:
    """One visitor: some agents with ids of their own, every tenth with something wrong; half leave without a word."""
    messages = conversation(dice, "3DBall?team=0")
    agents = 0
    try:
        with RawClient(port) as caller:
            for data in messages:
                message = UnityMessageProto.FromString(data)
                for rows in message.unity_output.rl_output.agentInfos.values():
                    row = rows.value[0]
                    del rows.value[1:]
                    for agent in range(AGENTS):
                        row.id = first_agent + agent
                        rows.value.append(row)
                    agents = AGENTS
                    del rows.value[0]
                output = message.SerializeToString()
                caller.say(mutated_message(dice, output) if dice.random() < 0.1 else output)
            if dice.random() < 0.5:
                caller.say(b"\x0a\x03\x08\x90\x03")
    except Refused:
        pass
    return agents


@fault_counts(None, 600, minutes=30)
def test_visitors_leave_nothing_behind(scene, note, count: int) -> None:
    """Five visitors a second for ``count`` seconds, each with new agents, leave no memory behind."""
    write_configuration(
        scene.folder, {"3DBall": small_settings(checkpoint_interval=24_000, summary_freq=12_000)}
    )
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1")
    run.wait_for_output("Listening on port")
    witness = scene.healthy(port, pause_s=0.005)
    witness.go_on()
    dice, began = random.Random(1), time.monotonic()
    visitors, agents, points = 0, 0, []
    threads, files = 0, 0
    while (now := time.monotonic() - began) < count:
        agents += visit(port, dice, agents)
        visitors += 1
        if now > count * WARM_UP:
            points.append((time.monotonic() - began, run.memory()))
            threads = threads or run.threads()
            files = files or run.files()
        due = began + visitors / 5.0
        wait_until(lambda: time.monotonic() >= due, "the next visitor")  # noqa: B023
    slope = slope_of(points) * 3600 / MIB
    within = (count * (1 - WARM_UP)) * slope / 3600
    middle = began + count * WARM_UP
    third = count * (1 - WARM_UP) / 2
    note(
        "a soak with visitors, half of whom leave without a word",
        f"{count} s, {visitors} visitors, {agents} agent ids",
        f"{points[-1][1] / MIB:.0f} MB, {slope:+.1f} MB an hour after the first third; threads "
        f"{threads} → {run.threads()}, files {files} → {run.files()}; ticks a second "
        f"{witness.rate(middle, middle + third):.0f} → {witness.rate(middle + third, time.monotonic()):.0f}",
    )
    assert run.poll() is None
    assert "Traceback" not in run.output
    assert within < (5.0 * count / 3600 if count >= 600 else 15.0)
    assert run.threads() <= threads + 2
    assert run.files() <= files + 5


def slope_of(points: list[tuple[float, int]]) -> float:
    """Bytes a second, as least squares see it."""
    times, sizes = [point[0] for point in points], [point[1] for point in points]
    middle, mean = sum(times) / len(times), sum(sizes) / len(sizes)
    spread = sum((each - middle) ** 2 for each in times)
    return sum((t - middle) * (size - mean) for t, size in points) / spread
