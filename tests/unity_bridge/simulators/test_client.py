from __future__ import annotations

import signal
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from unity_bridge.side_channels import SideChannelRecord, pack_records
from unity_bridge.simulators.academy import ECHO
from unity_bridge.simulators.client import (
    ConnectError,
    ConversationError,
    run,
    terminate_like_ctrl_c,
)
from unity_bridge.simulators.scenes.basic import Basic

BASIC = "Basic?team=0"


def test_a_conversation_over_a_real_channel(trainer, serve) -> None:
    trainer.handshake().then(*[trainer.act(BASIC, discrete=[[1]])] * 5)
    with serve(trainer.exchange) as port:
        assert run(Basic(), port, connect_timeout_s=10) == "the trainer ended the conversation"
    assert [message.header.status for message in trainer.received] == [200] * 8
    assert trainer.received[5].unity_output.rl_output.agentInfos[BASIC].value[0].done


def test_a_trainer_that_comes_later_is_found(trainer, serve) -> None:
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
            ending = pool.submit(run, Basic(), port, connect_timeout_s=20)
            listener.accept()[0].close()  # the first attempt fails
        with serve(trainer.handshake().exchange, port):
            assert ending.result() == "the trainer ended the conversation"


def test_a_server_that_is_no_trainer_is_an_error() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(
        ConnectError, match=rf"what listens on 127\.0\.0\.1:{port} is no trainer: UNIMPLEMENTED"
    ):
        run(Basic(), port, connect_timeout_s=10)
    server.stop(None).wait()


def test_a_trainer_that_breaks_off_with_an_error_is_quoted(trainer, serve) -> None:
    def exchange(data: bytes, context: grpc.ServicerContext) -> bytes:
        if len(trainer.received) == 2:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "reward: expected a finite number, got nan")
        return trainer.exchange(data)

    trainer.handshake()
    with (
        serve(exchange) as port,
        pytest.raises(ConversationError, match="answered INVALID_ARGUMENT: reward: expected a finite number"),
    ):
        run(Basic(), port, connect_timeout_s=10)


def test_a_trainer_that_takes_its_time_is_told_of(trainer, serve) -> None:
    told, lines = threading.Event(), []

    def say(news: str) -> None:
        lines.append(news)
        told.set()

    def exchange(data: bytes, context: grpc.ServicerContext) -> bytes:
        if len(trainer.received) == 2:
            assert told.wait(30)
        return trainer.exchange(data)

    trainer.handshake()
    with serve(exchange) as port:
        run(Basic(), port, connect_timeout_s=10, say=say, silence_s=0.02)
    assert f"waiting for the trainer on 127.0.0.1:{port}, which has not answered for" in lines[0]


def broken_after(first, then, messages: int):
    """An exchange of one trainer that is gone after so many messages, and of another one that comes next."""

    def exchange(data: bytes, context: grpc.ServicerContext) -> bytes:
        if len(first.received) < messages:
            return first.exchange(data)
        if len(first.received) == messages:
            first.exchange(data)
            context.abort(grpc.StatusCode.UNAVAILABLE, "")
        return then.exchange(data)

    return exchange


def test_next_trainer_on_the_port_gets_its_own_conversation(trainer, serve) -> None:
    news: list[str] = []
    trainer.handshake().then(trainer.act(BASIC, discrete=[[1]]))
    another = type(trainer)().handshake().then(trainer.act(BASIC, discrete=[[1]]))
    with serve(broken_after(trainer, another, 3)) as port:
        ending = run(Basic(), port, connect_timeout_s=10, reconnect_s=30, say=news.append)
    assert ending == "the trainer ended the conversation"
    assert news == [f"the trainer on 127.0.0.1:{port} is gone; waiting 30 s for another one"]
    assert [message.header.status for message in another.received] == [200] * 4
    assert [
        each.brain_name for each in another.received[2].unity_output.rl_initialization_output.brain_parameters
    ] == [BASIC]


def test_servers_without_answers_do_not_prolong_the_wait(trainer, serve) -> None:
    def exchange(data: bytes, context: grpc.ServicerContext) -> bytes:
        if len(trainer.received) == 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "")
        return trainer.exchange(data)

    trainer.handshake().then(trainer.act(BASIC, discrete=[[1]]))
    with serve(exchange) as port:
        ending = run(Basic(), port, connect_timeout_s=10, reconnect_s=0.5)
    assert ending == f"no other trainer listened on 127.0.0.1:{port} within 0.5 s"


def test_episodes_are_counted_over_all_conversations(trainer, serve) -> None:
    one_episode = [trainer.act(BASIC, discrete=[[1]])] * 3
    trainer.handshake().then(*one_episode, *one_episode, *one_episode)
    another = type(trainer)().handshake().then(*one_episode, *one_episode)
    with serve(broken_after(trainer, another, 7)) as port:
        ending = run(Basic(), port, episodes=2, connect_timeout_s=10, reconnect_s=30)
    assert ending == "1 episodes are complete"
    assert another.received[-1].header.status == 400


def test_a_signal_within_a_callback_of_python_ends_the_program_too() -> None:
    """Python drops what is raised there: one of the import machinery's callbacks once kept a page open."""

    class Object:
        pass

    held = [Object()]
    reference = weakref.ref(held[0], lambda _: signal.raise_signal(signal.SIGTERM))

    def work() -> None:
        held.clear()
        time.sleep(30)

    with terminate_like_ctrl_c(), pytest.raises(KeyboardInterrupt):
        work()
    assert reference() is None


def test_messages_over_four_megabytes_are_received(trainer, serve) -> None:
    trainer.handshake()
    trainer.script[1].unity_input.rl_input.side_channel = pack_records(
        [SideChannelRecord(ECHO, bytes(5_000_000))]
    )
    with serve(trainer.exchange) as port:
        run(Basic(), port, connect_timeout_s=10)
    assert len(trainer.received[2].unity_output.rl_output.side_channel) > 5_000_000
