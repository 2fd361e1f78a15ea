"""Launched simulators that are killed, frozen, or spoken for by strangers."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import time
from pathlib import Path

from fault_counts import fault_counts
from processes import Process, small_settings, steps, wait_until, write_configuration
from raw_clients import RawClient, Refused

from unity_bridge.simulators.conversation import introduction
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

NO_LIMIT = ("--max-lifetime-restarts=-1", "--restarts-rate-limit-n=-1")
FOR_EVER = 10**9


def sim_pids(run: Process) -> list[int]:
    """The launched simulators that live; nothing else that a run starts lasts."""
    return [pid for pid in run.descendants() if b"mlagents-port" in command(pid)]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ports_of(run: Process) -> list[int]:
    """Returns the ports at which the run listens for its launched simulators."""
    found = (re.search(rb"--mlagents-port\0(\d+)", command(pid)) for pid in sim_pids(run))
    return [int(match[1]) for match in found if match]


@fault_counts(1, 50, minutes=60)
def test_simulators_that_are_killed(scene, note, count: int) -> None:
    """One of four, at any moment: also while it starts up, and again right after."""
    dice, budget = random.Random(count), 4000 * count + 8_000
    write_configuration(scene.folder, {"3DBall": small_settings(max_steps=budget)})
    run = scene.learn("--env=sim:3dball", "--num-envs=4", "--seed=1", *NO_LIMIT)
    run.wait_for_output("Step: ")
    killed: set[int] = set()
    booting = 0
    while len(killed) < count and run.poll() is None:
        moment = time.monotonic() + dice.choice([0.0, 0.05, dice.uniform(0.0, 1.0)])
        wait_until(lambda: time.monotonic() >= moment, "a moment")  # noqa: B023
        living = [pid for pid in sim_pids(run) if pid not in killed]
        if not living:
            continue
        pid = max(living) if len(killed) % 2 else dice.choice(living)  # the youngest is often still booting
        age = time.time() - os.stat(f"/proc/{pid}").st_mtime if os.path.exists(f"/proc/{pid}") else 1.0
        booting += age < 0.5
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed.add(pid)
    code = run.end(600.0)
    orphans, reached = run.orphans(), max(steps(run.output))
    blamed = {int(pid) for pid in re.findall(r"pid (\d+)\)", run.output)}
    note(
        "launched simulators killed",
        f"{len(killed)} × kill −9 of one of four, {booting} of them in their first half second",
        f"exit code {code}, ended at step {reached} of {budget}; {len(blamed - killed)} others lost; "
        f"{len(orphans)} orphans",
    )
    assert code == 0, run.output[-3000:]
    assert len(killed) == count
    assert budget <= final_step(scene.folder) < budget + 60
    assert not blamed - killed
    assert not orphans


def final_step(folder: Path) -> int:
    return max(int(path.stem.rpartition("-")[2]) for path in folder.rglob("3DBall-*.safetensors"))


@fault_counts(None, 5)
def test_a_simulator_that_freezes(scene, note, count: int) -> None:
    """SIGSTOP of one of three: it is started again when its time is up, and the others are served meanwhile."""
    write_configuration(scene.folder, {"3DBall": small_settings(summary_freq=600)})
    run = scene.learn("--env=sim:3dball", "--num-envs=3", "--seed=1", "--timeout-wait=5", *NO_LIMIT)
    noticed, before, during = [], [], []
    for number in range(count):
        run.wait_for_output("Connected to ", times=3 + number)
        run.wait_for_output("Step: ", times=run.output.count("Step: ") + 5)
        first = rate(run, 4)
        victim = sim_pids(run)[0]
        began = time.monotonic()
        os.kill(victim, signal.SIGSTOP)
        second = rate(run, 4)
        run.wait_for_output(f"pid {victim}")
        noticed.append(time.monotonic() - began)
        before.append(first)
        during.append(second)
        wait_until(lambda: victim not in sim_pids(run), "the end of a frozen one")  # noqa: B023
    note(
        "a simulator that freezes (SIGSTOP), `--timeout-wait=5`",
        f"{count}, one of three",
        f"noticed after {max(noticed):.1f} s at most; the other two got {sum(during) / sum(before):.0%} "
        "of the steps of three (67% is their share)",
    )
    assert run.poll() is None
    assert max(noticed) < 60.0


def rate(run: Process, summaries: int) -> float:
    """Steps per second, over some summaries."""
    output = run.output.count("Step: ")
    run.wait_for_output("Step: ", times=output + 1)
    began, first = time.monotonic(), max(steps(run.output))
    run.wait_for_output("Step: ", times=output + 1 + summaries)
    return (max(steps(run.output)) - first) / (time.monotonic() - began)


@fault_counts(None, 1000)
def test_strangers_at_launched_ports(scene, note, count: int) -> None:
    """Strangers are refused, no simulator is started again, and nothing of theirs counts."""
    write_configuration(scene.folder, {"3DBall": small_settings()})
    run = scene.learn("--env=sim:3dball", "--num-envs=2", "--seed=1")
    run.wait_for_output("Step: ")
    ports = wait_until(lambda: len(found := ports_of(run)) == 2 and found, "two ports")
    output, accepted, statuses = len(run.output), 0, set()
    for number in range(count):
        port = ports[number % 2]
        try:
            with RawClient(port) as stranger:
                for message in LIES[number % len(LIES)]:
                    reply = UnityMessageProto.FromString(stranger.say(message))
                    accepted += reply.header.status == 200
        except Refused as refused:
            statuses.add(refused.code.name)
        if number % 10 == 9:
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(b"\x08\x01")
    run.wait_for_output("Step: ", times=run.output.count("Step: ") + 2)
    log = run.output[output:]
    note(
        "strangers at launched ports",
        f"{count} callers",
        f"{accepted} messages accepted, {log.count('starting it again')} simulators started again, "
        f"answers {', '.join(sorted(statuses))}",
    )
    assert run.poll() is None
    assert accepted == 0
    assert "starting it again" not in log
    assert max(map(float, re.findall(r"Mean Reward: (-?\d+\.\d+)", log))) < 100


def lie() -> bytes:
    """A reward of 1000 in the simulator's name."""
    message = UnityMessageProto()
    message.header.status = 200
    for agent in range(12):
        info = message.unity_output.rl_output.agentInfos["3DBall?team=0"].value.add(
            id=agent, reward=1000.0, done=True
        )
        info.observations.add(shape=[8]).float_data.data.extend([0.0] * 8)
    return message.SerializeToString()


LIES: list[list[bytes]] = [
    [b"\x08\x01"],
    [introduction()],
    [introduction(), b"\x0a\x02\x08\x00"],
    [lie()],
    [b""],
    [b"\x0a\x03\x08\x90\x03"],  # goodbye
]
