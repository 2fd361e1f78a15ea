"""The simulator's gRPC edge: finds the trainer, carries the conversation, and leaves politely."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from unity_bridge.errors import BridgeError
from unity_bridge.remote.dialing import PlainConnection, TrainerConnection, TrainerUnreachable
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.conversation import Watch, converse, goodbye
from unity_bridge.simulators.scene import Scene, Steps
from unity_bridge.simulators.wait_notice import WaitNotice

_INITIAL_RETRY_S = 0.1
_MAX_RETRY_S = 1.0
"""Between two attempts to find a trainer."""
_REPEAT_S = 0.05
"""Seconds until a KeyboardInterrupt that Python dropped is raised again."""

GOODBYE_S = 1.0
"""Maximum seconds for telling the trainer that the simulator leaves."""

SILENCE_S = 30.0
"""Seconds without an answer after which it is said that one is waited for; the next pauses are longer."""

_DISCONNECTED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class ConnectError(BridgeError):
    """No trainer listens on the port, or what listens is no trainer."""


class ConversationError(BridgeError):
    """The trainer broke off a conversation with an error. The text is what it said."""


def run(
    scene: Scene,
    trainer: int | TrainerConnection,
    *,
    seed: int | None = None,
    episodes: int | None = None,
    watch: Watch = lambda steps, is_reset: None,
    connect_timeout_s: float,
    reconnect_s: float = 0.0,
    say: Callable[[str], None] = lambda news: None,
    academy: Academy | None = None,
    silence_s: float = SILENCE_S,
) -> str:
    """Connects to a trainer and plays the scene for it; see ``converse``.

    SIGTERM and Ctrl-C end it like a window that is closed: the trainer hears a goodbye.

    Args:
        scene, seed, watch, academy: as ``converse``.
        trainer: the port where it listens on this machine; or the connection to one on another machine.
        episodes: leave after so many, over all conversations; None plays on.
        connect_timeout_s: how long to wait for a trainer to listen.
        reconnect_s: how long to wait for another one where the connection breaks without a word; 0 leaves at once.
        say: called with news for a person who looks on, a line each, also in another thread.
        silence_s: how long an answer of the trainer may take until ``say`` is told that it is waited for.

    Returns:
        Why it ended, in a few words.

    Raises:
        ConnectError: no conversation came about.
        CertificateMismatch: another server than the trainer answers.
        ConversationError: the trainer broke it off with an error.
        WireError, SceneError: as ``converse``.
    """
    connection = PlainConnection(f"127.0.0.1:{trainer}") if isinstance(trainer, int) else trainer

    def say_waiting(waited_s: float) -> None:
        say(f"waiting for the trainer on {connection.address}, which has not answered for {waited_s:.0f} s")

    with connection, WaitNotice(say_waiting, silence_s) as notice, terminate_like_ctrl_c():
        player = _Player(connection, scene, seed, episodes, watch, academy, notice)
        try:
            return _play_until_over(player, connect_timeout_s, reconnect_s, say)
        except KeyboardInterrupt:
            with contextlib.suppress(grpc.RpcError, TrainerUnreachable):
                connection.exchange(goodbye(), timeout=GOODBYE_S)
            return "it was told to stop"


def _play_until_over(
    player: _Player, connect_timeout_s: float, reconnect_s: float, say: Callable[[str], None]
) -> str:
    """Plays as soon as a trainer answers, and with the next one if its connection breaks. Returns why it ended."""
    began, timeout_s, retry_s = time.monotonic(), connect_timeout_s, _INITIAL_RETRY_S
    while True:
        try:
            return player.play()
        except _ConnectionLost as lost:
            why = lost.why
            if lost.was_answered and not reconnect_s:
                return f"the trainer on {player.address} is gone"
            if lost.was_answered:
                say(f"the trainer on {player.address} is gone; waiting {reconnect_s:g} s for another one")
                began, timeout_s, retry_s = time.monotonic(), reconnect_s, _INITIAL_RETRY_S
        left = began + timeout_s - time.monotonic()
        if left <= 0 and player.was_answered:
            return f"no other trainer listened on {player.address} within {timeout_s:g} s"
        if left <= 0:
            port = player.address.rpartition(":")[2]
            raise ConnectError(
                f"no trainer answers on {player.address} (waited {timeout_s:g} s{why}). "
                f"Start mlagents-style learn CONFIG --port {port}, or wait longer with --connect-timeout 60"
            )
        time.sleep(min(retry_s, left))
        retry_s = min(2 * retry_s, _MAX_RETRY_S)


class _ConnectionLost(Exception):
    """The connection is broken."""

    def __init__(self, was_answered: bool, why: str = "") -> None:
        """
        Args:
            was_answered: whether anything of this conversation was answered.
            why: the end of a sentence.
        """
        super().__init__()
        self.was_answered = was_answered
        self.why = why


@dataclass(slots=True)
class _Player:
    """A scene in one conversation after the other."""

    connection: PlainConnection
    scene: Scene
    seed: int | None
    episodes: int | None
    watch: Watch
    academy: Academy | None
    notice: WaitNotice
    _completed: int = 0
    """The number of episode ends that a trainer was sent."""
    was_answered: bool = False
    """Whether any trainer has answered yet."""

    @property
    def address(self) -> str:
        """Where the trainer is."""
        return self.connection.address

    def play(self) -> str:
        """Holds one conversation. Returns why it ended.

        Raises:
            _ConnectionLost: it broke without a reason given.
            ConnectError, ConversationError, CertificateMismatch, WireError, SceneError: as ``run``.
        """
        answered, shown = False, 0

        def exchange(data: bytes) -> bytes:
            nonlocal answered, shown
            self.notice.begin()
            try:
                reply = self.connection.exchange(data)
            finally:
                self.notice.end()
            answered = self.was_answered = True
            self._completed, shown = self._completed + shown, 0
            return reply

        def watch(steps: Steps, is_reset: bool) -> None:
            nonlocal shown
            shown = sum(batch.num_terminal for batch in steps.values())
            self.watch(steps, is_reset)

        left = None if self.episodes is None else self.episodes - self._completed
        try:
            return converse(
                exchange, self.scene, seed=self.seed, episodes=left, watch=watch, academy=self.academy
            )
        except TrainerUnreachable as error:
            raise _ConnectionLost(answered, f"; {error}") from None
        except grpc.RpcError as error:
            # Every error that a call raises is also that call, which its published type does not say.
            code, details = error.code(), error.details()
            if code in _DISCONNECTED:
                raise _ConnectionLost(answered) from None
            if code is grpc.StatusCode.UNAUTHENTICATED:
                raise ConnectError(f"the trainer on {self.address} refuses the call: {details}") from None
            if not answered:
                raise ConnectError(
                    f"what listens on {self.address} is no trainer: {code.name}: {details}"
                ) from None
            raise ConversationError(
                f"the trainer on {self.address} answered {code.name}: {details}"
            ) from None


@contextlib.contextmanager
def terminate_like_ctrl_c() -> Iterator[None]:
    """A context in which SIGTERM raises KeyboardInterrupt, if this is the main thread.

    Python drops an exception that is raised within a callback of its own, such as one of a weak reference. Such a
    KeyboardInterrupt is raised again shortly after.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    report = sys.unraisablehook
    repeats: list[threading.Timer] = []

    def raise_again(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            report(dropped)
            return
        repeats.append(threading.Timer(_REPEAT_S, _terminate_main_thread))
        repeats[-1].daemon = True
        repeats[-1].start()

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        for repeat in repeats:
            repeat.cancel()
        sys.unraisablehook = report
        signal.signal(signal.SIGTERM, before)


def _terminate_main_thread() -> None:
    if hasattr(signal, "pthread_kill"):  # which wakes the thread, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    else:
        _thread.interrupt_main(signal.SIGTERM)
