"""The command serve: its mistakes, its output, and its end."""

from __future__ import annotations

import re
import signal
import socket
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

import grpc
from policy_services import Answer, Client, Rows, behavior_of, save
from processes import wait_until

from trainer_service import load_policy
from trainer_service.commands import serve
from unity_bridge.wire.policy_service_pb2 import ActRequest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["balls"], "no run 'balls' in 'results' (did you mean 'ball'?)."),
        (["empty"], "its folder exists, but the run ended before any agent appeared"),
        (["ball", "elsewhere/ball"], "two runs are called 'ball'"),
        (["ball", "--checkpoint=7"], "step 7"),
        (["ball", "--memories=0"], "--memories: expected at least 1, got 0"),
        (["ball", "--port={taken}"], "is in use by"),
        (["ball", "--port=0", "--metrics-port={taken}"], "is in use by"),
        (["ball", "--insecure-listen", "--token-file=tokens"], "leave out --token-file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_message(
    mlagents_style, workplace: Path, arguments: list[str], message: str
) -> None:
    for folder in ("results/ball", "elsewhere/ball"):
        save(behavior_of("vector"), workplace / folder)
    (workplace / "results" / "empty").mkdir()
    (workplace / "results" / "empty" / "configuration.yaml").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = mlagents_style("serve", *(each.format(taken=port) for each in arguments))
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err
    assert not said.out


def test_absent_packages_are_named_with_their_extra(mlagents_style, workplace: Path, monkeypatch) -> None:
    save(behavior_of("vector"), workplace / "results" / "ball")
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "grpc_health" else name)
    said = mlagents_style("serve", "ball", "--port=0")
    assert said.code == 2
    assert re.search(r"grpcio-health-checking .* missing: pip install .*\[serve\]", said.err)


def test_clients_go_on_after_a_service_was_killed_and_restarted(
    start, workplace: Path, free_port: int
) -> None:
    folder = save(behavior_of("LSTM"), workplace / "results" / "ball")
    policy, rows = load_policy(folder), Rows([np.ones((1, 3), np.float32)])
    over, answers = threading.Event(), {name: list[bool | None]() for name in "abc"}

    def call(name: str) -> None:
        client, message = Client(free_port), ActRequest(ids=[name], **rows.fields())
        while not over.is_set():
            try:
                answer = client.act(message, wait_for_ready=True, timeout=60)
                answers[name] += Answer.of(answer, policy).kept
            except grpc.RpcError:  # the killed process had the call
                answers[name].append(None)
        client.channel.close()

    def all_called(more: int) -> None:
        before = {name: len(each) for name, each in answers.items()}
        wait_until(lambda: all(len(answers[name]) >= before[name] + more for name in answers), "more answers")

    command = ("serve", "ball", f"--port={free_port}", "--metrics-port=0")
    threads = [threading.Thread(target=call, args=(name,)) for name in answers]
    first = start(*command)
    first.wait_for_output(f"Serving at 127.0.0.1:{free_port}")
    for thread in threads:
        thread.start()
    all_called(20)
    first.signal(signal.SIGKILL)
    first.end()
    second = start(*command)
    second.wait_for_output("counters at")
    all_called(20)
    over.set()
    for thread in threads:
        thread.join()
    for each in answers.values():
        known = [kept for kept in each if kept is not None]
        assert known.count(False) == 2, "a memory begins with the first and with the second process"
        assert each.count(None) <= 3
    [address] = re.findall(r"counters at (\S+)", second.output)
    with urllib.request.urlopen(address) as told:
        counters = told.read().decode()
    assert 'trainer_service_callers_remembered{behavior="LSTM",run="ball"} 3.0' in counters
    assert re.search(r"trainer_service_decisions_total\{.*\} [1-9]", counters)
    assert "  run ball, behavior LSTM, step 100" in second.output
    second.signal(signal.SIGINT)
    assert second.end() == 0
    assert "Traceback" not in second.output
