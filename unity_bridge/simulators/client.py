"""The simulator's gRPC edge: finds the trainer, carries the conversation, and leaves politely."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

import grpc

from unity_bridge.errors import BridgeError
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.conversation import Exchange, converse, goodbye
from unity_bridge.simulators.scene import Scene, Steps

METHOD = "/communicator_objects.UnityToExternalProto/Exchange"

GOODBYE_S = 1.0
"""How long a trainer may take to hear that we leave."""

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a proxy for the internet would swallow the way to this machine
    # The trainer may start after us: look again soon, not after gRPC's growing pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class ConnectError(BridgeError):
    """Nobody listened, or who did is no trainer."""


class ConversationError(BridgeError):
    """The trainer broke off a conversation with an error. The text is what it said."""


def run(
    scene: Scene,
    port: int,
    *,
    seed: int | None = None,
    episodes: int | None = None,
    watch: Callable[[Steps], None] = lambda steps: None,
    connect_timeout_s: float,
    academy: Academy | None = None,
) -> str:
    """Connects to the trainer on this machine's port and plays the scene for it; see ``converse``.

    SIGTERM and Ctrl-C end it like a window that is closed: the trainer hears a goodbye.

    Returns:
        Why it ended, in a few words.

    Raises:
        ConnectError: no conversation came about.
        ConversationError: the trainer broke it off with an error.
        WireError, SceneError: as ``converse``.
    """
    address = f"127.0.0.1:{port}"
    with grpc.insecure_channel(address, options=_OPTIONS) as channel, _terminate_like_ctrl_c():
        exchange: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        try:
            _wait_for_trainer(channel, address, connect_timeout_s)
            return _play(exchange, address, scene, seed, episodes, watch, academy)
        except KeyboardInterrupt:
            with contextlib.suppress(grpc.RpcError):
                exchange(goodbye(), timeout=GOODBYE_S)
            return "it was told to stop"


def _wait_for_trainer(channel: grpc.Channel, address: str, timeout_s: float) -> None:
    try:
        grpc.channel_ready_future(channel).result(timeout=timeout_s)
    except grpc.FutureTimeoutError:
        raise ConnectError(f"no trainer answers on {address} (waited {timeout_s:g} s)") from None


def _play(
    exchange: Exchange,
    address: str,
    scene: Scene,
    seed: int | None,
    episodes: int | None,
    watch: Callable[[Steps], None],
    academy: Academy | None,
) -> str:
    answered = False

    def counted(data: bytes) -> bytes:
        nonlocal answered
        reply = exchange(data)
        answered = True
        return reply

    try:
        return converse(counted, scene, seed=seed, episodes=episodes, watch=watch, academy=academy)
    except grpc.RpcError as error:
        # Every error that a call raises is also that call, which its published type does not say.
        code, details = error.code(), error.details()
        if not answered:
            raise ConnectError(f"what listens on {address} is no trainer: {code.name}: {details}") from None
        if code in _GONE:
            return f"the trainer on {address} is gone"
        raise ConversationError(f"the trainer on {address} answered {code.name}: {details}") from None


@contextlib.contextmanager
def _terminate_like_ctrl_c() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, where this thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
