"""The service of policies over a real channel."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc_health")
pytest.importorskip("grpc_reflection")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from policy_services import KINDS, Answer, Client, Rows, Service, behavior_of, save, served_runs, service

from trainer_service import load_policy
from trainer_service.running.policy import Policy
from unity_bridge.remote.access import RemoteAccess
from unity_bridge.remote.dialing import authorization, find_trainer
from unity_bridge.serving.messages import MOST_CALLERS
from unity_bridge.wire.policy_service_pb2 import ActRequest, Observation

CALLERS = 5


@pytest.fixture
def open_kind(tmp_path: Path) -> Iterator[Callable[..., tuple[Service, Policy]]]:
    """Serves an untrained policy of a kind, and returns it, loaded by ``load_policy``, beside the service."""
    opened = []

    def begin(kind: str) -> tuple[Service, Policy]:
        folder = save(behavior_of(kind), tmp_path / kind)
        context = service(served_runs({kind: folder}))
        opened.append(context)
        return context.__enter__(), load_policy(folder, "Player" if kind == "member" else None)

    yield begin
    for context in opened:
        context.__exit__(None, None, None)


def request(rows: Rows, policy: Policy, **more: Any) -> ActRequest:
    return ActRequest(behavior=policy.behavior, **rows.fields(), **more)


@pytest.mark.parametrize("streams", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_actions_are_those_of_load_policy_over_episodes(open_kind, kind: str, streams: bool) -> None:
    opened, policy = open_kind(kind)
    assert (policy.memory_size > 0, policy.num_agents) == (kind == "LSTM", 2 if kind == "member" else 0)
    rng, ids = np.random.default_rng(3), np.array([f"caller {i}" for i in range(CALLERS)])
    memories, known = np.zeros((CALLERS, policy.memory_size), np.float32), np.zeros(CALLERS, bool)
    sent: list[ActRequest] = []
    expected = []
    for _ in range(40):
        here = rng.permutation(CALLERS)[: rng.integers(1, CALLERS + 1)]
        rows, begins = Rows.of(policy, len(here), rng), rng.random(len(here)) < 0.1
        actions, memories[here] = policy.predict(
            rows.observations, memories[here], episode_starts=begins, **rows.arguments()
        )
        sent.append(request(rows, policy, ids=ids[here], begins=begins))
        expected.append((actions, list(known[here] & ~begins) if policy.memory_size else []))
        known[here] = True
    client = opened.client
    answers = client.stream(iter(sent)) if streams else map(client.act, sent)
    for message, (actions, kept) in zip(answers, expected, strict=True):
        answer = Answer.of(message, policy)
        if policy.spec.action_spec.continuous_size:
            np.testing.assert_allclose(answer.continuous, actions.continuous, atol=1e-5)
        if policy.spec.action_spec.discrete_size:
            np.testing.assert_array_equal(answer.discrete, actions.discrete)
        assert (answer.kept, answer.step) == (kept, 100)


def test_observations_may_be_named_and_pictures_bytes(open_kind) -> None:
    opened, policy = open_kind("picture")
    pixels = np.random.default_rng(1).integers(0, 256, (4, 3, 20, 24), np.uint8)
    speed = np.ones((4, 2), np.float32)
    named = [
        Observation(name="speed", shape=(4, 2), floats=speed.tobytes()),
        Observation(name="camera", shape=pixels.shape, pixels=pixels.tobytes()),
    ]
    answer = Answer.of(opened.client.act(ActRequest(observations=named)), policy)
    np.testing.assert_array_equal(answer.discrete, policy.act([pixels, speed]).discrete)


def test_groups_of_one_batch_do_not_hear_each_other(open_kind) -> None:
    opened, policy = open_kind("talking")
    assert policy.communicates
    rng, sent, expected = np.random.default_rng(2), [], []
    for _ in range(40):
        rows, indices, groups = Rows.of(policy, 5, rng), np.array([0, 1, 2, 0, 1]), np.array([7, 7, 7, 9, 9])
        rows.indices = indices
        expected.append(
            policy.act(rows.observations, rows.allowed, agent_indices=indices, groups=groups).discrete
        )
        sent.append(request(rows, policy, groups=groups))
    calls = [opened.client.act.future(each) for each in sent]
    for call, actions in zip(calls, expected, strict=True):
        np.testing.assert_array_equal(Answer.of(call.result(timeout=60), policy).discrete, actions)
    assert len(np.unique(np.concatenate(expected))) > 1


def floats(*shape: int, value: float = 0.0) -> Observation:
    return Observation(shape=shape, floats=np.full(shape, value, "<f4").tobytes())


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no observations": ({"observations": []}, "observations: expected one for each sensor, got none"),
    "a sensor too few": ({"observations": [floats(2, 3)], "ids": []}, "expected 2 observation arrays, got 1"),
    "another shape": ({"observations": [floats(2, 3), floats(2, 4)]}, r"'speed': expected .* got \(2, 4\)"),
    "another number of callers": ({"observations": [floats(2, 3), floats(1, 2)]}, "'speed': expected shape"),
    "bytes of another shape": (
        {"observations": [Observation(shape=(2, 3), floats=b"123"), floats(2, 2)]},
        r"expected 24 bytes for shape \(2, 3\), got 3",
    ),
    "no shape": ({"observations": [Observation(floats=b"")]}, "expected a shape that begins with 1 to"),
    "an endless shape": ({"observations": [Observation(shape=[2, *[2**32 - 1] * 9])]}, "expected .* bytes for shape"),
    "too many callers": (
        {"observations": [floats(10_000, 3), floats(10_000, 2)], "ids": map(str, range(10_000))},
        f"expected a shape that begins with 1 to {MOST_CALLERS} callers, got \\(10000, 3\\)",
    ),
    "NaN": (
        {"observations": [floats(2, 3), floats(2, 2, value=np.nan)]},
        "caller 'a', sensor 'speed': expected finite numbers, got nan",
    ),
    "infinite": ({"observations": [floats(2, 3, value=-np.inf), floats(2, 2)]}, "sensor 'eyes': .* got -inf"),
    "unknown names": (
        {"observations": [Observation(name="nose", shape=(2, 2), floats=bytes(16)), floats(2, 3)]},
        "observations: expected eyes, speed, got nose",
    ),
    "an id too few": ({"ids": ["a"]}, "ids: expected 2, one for each caller, got 1"),
    "an id twice": ({"ids": ["a", "a"]}, "ids: expected each once, got 'a' more than once"),
    "begins": ({"begins": [True] * 3}, "begins: expected 2, one for each caller, got 3"),
    "a mask of another length": ({"action_mask": b"\0" * 5}, "action_mask: expected 2 x 7 bytes, got 5"),
    "a mask without a choice": ({"action_mask": b"\0" * 7 + b"\1" * 7}, "caller 'b', action mask: no choice is left"),
    "an unknown run": ({"run": "x"}, "NOT_FOUND run: no run 'x'; served are hybrid"),
    "an unknown behavior": ({"behavior": "Ball"}, "NOT_FOUND behavior: no behavior 'Ball'; served are hybrid"),
}  # fmt: skip


def test_bad_messages_get_words_and_others_their_actions(open_kind) -> None:
    opened, _ = open_kind("hybrid")
    good = {"observations": [floats(2, 3), floats(2, 2)], "ids": ["a", "b"]}
    wanted = opened.client.act(ActRequest(**good))
    for case, (changes, words) in BAD.items():
        bad = opened.client.act.future(ActRequest(**{**good, **changes}))
        others = [opened.client.act.future(ActRequest(**good)) for _ in range(3)]
        assert [each.result(timeout=30) for each in others] == [wanted] * 3, case
        status = "NOT_FOUND" if words.startswith("NOT_FOUND") else "INVALID_ARGUMENT"
        assert bad.code().name == status, case
        assert re.search(words.removeprefix("NOT_FOUND "), bad.details()), (case, bad.details())
    assert opened.client.raw.future(b"\xff half a message").code() is grpc.StatusCode.INVALID_ARGUMENT
    too_large = opened.client.raw.future(bytes(65 * 2**20))
    assert too_large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in too_large.details()


def test_a_policy_that_needs_ids_or_indices_asks_for_them(open_kind) -> None:
    for kind, words in (("LSTM", "has a memory: name each caller"), ("member", "say their agent_indices")):
        opened, policy = open_kind(kind)
        call = opened.client.act.future(ActRequest(behavior=policy.behavior, observations=[floats(1, 3)]))
        assert words in call.details()
    beyond = ActRequest(behavior="Player", observations=[floats(1, 3)], agent_indices=[2])
    assert "was trained for indices below 2, got 2" in opened.client.act.future(beyond).details()


def test_a_bad_message_ends_its_stream_alone(open_kind) -> None:
    opened, policy = open_kind("LSTM")
    rows = Rows([np.ones((1, 3), np.float32)])
    sent = [request(rows, policy, ids=["a"]), ActRequest()]
    stream = opened.client.stream(iter(sent))
    assert not Answer.of(next(stream), policy).kept[0]
    with pytest.raises(grpc.RpcError, match="expected one for each sensor"):
        next(stream)
    assert Answer.of(opened.client.act(sent[0]), policy).kept == [True]  # of the stream, too


def test_half_a_message_and_other_protocols_keep_nobody_waiting(open_kind) -> None:
    opened, policy = open_kind("vector")
    rows = Rows.of(policy, 1, np.random.default_rng(0))
    with (
        socket.create_connection(("127.0.0.1", opened.port)) as half,
        socket.create_connection(("127.0.0.1", opened.port)) as web,
    ):
        half.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x20\x01")
        web.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert opened.client.act(request(rows, policy), timeout=30).step == 100


def test_runs_are_apart_and_one_of_several_must_be_named(tmp_path: Path) -> None:
    runs = {name: save(behavior_of("LSTM", seed), tmp_path / name, seed) for seed, name in enumerate("ab", 1)}
    policies = {name: load_policy(folder) for name, folder in runs.items()}
    rows = Rows([np.ones((1, 3), np.float32)])
    with service(served_runs(runs)) as opened:
        for name, policy in policies.items():
            answer = Answer.of(opened.client.act(request(rows, policy, run=name, ids=["me"])), policy)
            np.testing.assert_allclose(
                answer.continuous, policy.predict(rows.observations)[0].continuous, atol=1e-5
            )
            assert (answer.kept, answer.step) == ([False], policy.step)
        call = opened.client.act.future(request(rows, policies["a"], ids=["me"]))
        assert call.details() == "run: one of several runs must be named; served are a, b"


def test_a_newer_checkpoint_is_followed_without_a_lost_call(tmp_path: Path) -> None:
    folder = save(behavior_of("LSTM"), tmp_path / "run")
    policy, rows = load_policy(folder), Rows([np.ones((1, 3), np.float32)])
    with service(served_runs({"run": folder})) as opened:
        over, failures = threading.Event(), []
        answers: list[Answer] = []

        def call() -> None:
            client = Client(opened.port)
            while not over.is_set():
                try:
                    answers.append(Answer.of(client.act(request(rows, policy, ids=["a"])), policy))
                except grpc.RpcError as error:
                    failures.append(error)
            client.channel.close()

        thread = threading.Thread(target=call)
        thread.start()
        run = opened.served["run"]
        for step, memory in ((200, 8), (300, 8), (400, 12)):
            network = {"memory": {"memory_size": memory, "sequence_length": 4}}
            save(behavior_of("LSTM", step, **network), folder, step)
            opened.run(run.follow())
            # An answer of the new policy has come before the next one is saved.
            assert Answer.of(opened.client.act(request(rows, policy, ids=["b"])), policy).step == step
            assert Answer.of(opened.client.act(request(rows, policy, ids=["a"])), policy).step == step
        (folder / "LSTM" / "checkpoint.safetensors").write_bytes(b"damaged")
        opened.run(run.follow())
        assert Answer.of(opened.client.act(request(rows, policy, ids=["b"])), policy).kept == [True]
        over.set()
        thread.join()
    assert not failures
    steps = [each.step for each in answers]
    assert steps == sorted(steps)
    began = [each.step for each in answers[1:] if not each.kept[0]]
    assert began in (
        [],
        [400],
    )  # memories of the same size are kept; the first of another size may be the other call's


def test_health_and_reflection_answer(open_kind) -> None:
    opened, _ = open_kind("vector")
    check = health_pb2_grpc.HealthStub(opened.client.channel).Check
    for name in ("", "trainer_service.v1.PolicyService"):
        assert (
            check(health_pb2.HealthCheckRequest(service=name)).status
            == health_pb2.HealthCheckResponse.SERVING
        )
    ask = reflection_pb2_grpc.ServerReflectionStub(opened.client.channel).ServerReflectionInfo
    [answer] = ask(
        iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="trainer_service.v1.ActRequest")])
    )
    assert b"begins" in answer.file_descriptor_response.file_descriptor_proto[0]


def test_a_secured_port_takes_its_token_and_refuses_strangers(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    access = RemoteAccess.open(token_file=tmp_path / "tokens")
    folder = save(behavior_of("vector"), tmp_path / "run")
    rows = Rows.of(load_policy(folder), 1, np.random.default_rng(0))
    with service(served_runs({"run": folder}), access) as opened:
        access.announce("127.0.0.1", opened.port)
        code = access.join_code()
        assert code is not None
        with find_trainer(code).open_channel() as channel:
            client, message = Client(0, channel), ActRequest(**rows.fields())
            assert client.act(message, metadata=authorization(code.token)).step == 100
            stream = client.stream(iter([message]), metadata=authorization(code.token))
            assert next(stream).step == 100
            health = health_pb2_grpc.HealthStub(channel).Check
            for stranger in (
                client.act.future(message),
                client.act.future(message, metadata=authorization("x" * 43)),
                client.stream(iter([message])),
                health.future(health_pb2.HealthCheckRequest()),
            ):
                assert stranger.code() is grpc.StatusCode.UNAUTHENTICATED
        plain = Client(opened.port)
        assert plain.act.future(message).code() is grpc.StatusCode.UNAVAILABLE
        plain.channel.close()
