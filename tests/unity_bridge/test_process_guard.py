"""The guard around hosted code: what it changes in its process stays with it, and comes back for it."""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.process_guard import HostedExit, ProcessGuard, call_guarded

STREAM = io.StringIO()


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "numpy": (lambda: np.seterr(all="raise"), np.geterr),
    "logging": (lambda: logging.disable(logging.CRITICAL), lambda: logging.root.manager.disable),
    "recursion": (lambda: sys.setrecursionlimit(2345), sys.getrecursionlimit),
    "stdout": (lambda: setattr(sys, "stdout", STREAM), lambda: sys.stdout),
    "stderr": (lambda: setattr(sys, "stderr", STREAM), lambda: sys.stderr),
}
"""By what hosted code may set: how it does, and how it reads."""


@pytest.fixture(autouse=True)
def process_of_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Undoes what a guard that fails lets pass."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022), sys.getrecursionlimit(), sys.stdout, sys.stderr
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)}
    with warnings.catch_warnings(), np.errstate():
        yield
    os.umask(before[0])
    sys.setrecursionlimit(before[1])
    sys.stdout, sys.stderr = before[2:]
    logging.disable(logging.NOTSET)
    for number, each in handlers.items():
        signal.signal(number, each)


@pytest.fixture
def guard() -> ProcessGuard:
    return ProcessGuard()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_put_back_and_found_again(guard: ProcessGuard, name: str) -> None:
    change, read = SETTINGS[name]
    before, inside = read(), guard.call(read)
    guard.call(change)
    assert read() == before
    theirs = guard.call(read)
    assert theirs != inside
    assert read() == before
    assert guard.call(read) == theirs


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_put_back_after_an_exception(guard: ProcessGuard, name: str) -> None:
    change, read = SETTINGS[name]
    before = read()

    def fail() -> None:
        change()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guard.call(fail)
    assert read() == before


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - {"folder"}))
def test_what_other_code_sets_meanwhile_stays(guard: ProcessGuard, name: str) -> None:
    guard.call(lambda: None)
    change, read = SETTINGS[name]
    change()
    after = read()
    guard.call(lambda: None)
    assert read() == after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_handlers_of_signals_are_the_trainers_after_each_call(guard: ProcessGuard, number: int) -> None:
    before = signal.getsignal(number)
    guard.call(signal.signal, number, signal.SIG_IGN)
    assert signal.getsignal(number) is before
    guard.call(lambda: None)
    assert signal.getsignal(number) is before


def test_the_file_mode_mask_is_the_trainers_after_each_call(guard: ProcessGuard, tmp_path: Path) -> None:
    guard.call(os.umask, 0o777)
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("change", [lambda: warnings.simplefilter("error"), warnings.resetwarnings])
def test_filters_of_warnings_are_the_trainers_after_each_call(
    guard: ProcessGuard, change: Callable[[], None]
) -> None:
    filters, before = warnings.filters, list(warnings.filters)
    guard.call(change)
    assert warnings.filters is filters
    assert list(filters) == before


def test_filters_of_a_thread_that_saves_meanwhile_stay(guard: ProcessGuard) -> None:
    """It ignores an exporter's warnings, in a copy of the list, and begins or ends that within a call."""
    before = warnings.filters
    saving = warnings.catch_warnings()
    guard.call(saving.__enter__)
    warnings.simplefilter("ignore")
    guard.call(lambda: None)
    warnings.warn("not an error here", UserWarning, stacklevel=1)
    guard.call(saving.__exit__, None, None, None)
    assert warnings.filters is before


def test_prints_of_hosted_code_alone_go_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    other = threading.Thread(target=print, args=("a thread of the trainer",))

    def meanwhile() -> None:
        other.start()
        other.join()

    guard = ProcessGuard()
    print("trainer")
    guard.call(print, "environment")
    guard.call(lambda: sys.stdout.write("and so\n"))
    guard.call(meanwhile)
    print("trainer again", flush=True)
    said = capfd.readouterr()
    assert said.out == "trainer\na thread of the trainer\ntrainer again\n"
    assert said.err == "environment\nand so\n"


def test_standard_output_is_as_before_when_threads_have_crossed() -> None:
    before, both, turns = sys.stdout, threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)

    def host(is_first: bool) -> None:
        def meanwhile() -> None:
            both.wait()  # both have begun: one ends before the other
            if not is_first:
                turns.wait()

        ProcessGuard().call(meanwhile)
        if is_first:
            turns.wait()

    threads = [threading.Thread(target=host, args=(is_first,)) for is_first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is before


def test_changes_of_another_thread_s_environment_are_not_taken_for_the_trainers(tmp_path: Path) -> None:
    """One call begins and ends within another one, which has changed the folder."""
    filters = warnings.filters
    one, other = ProcessGuard(), ProcessGuard()

    def within() -> None:
        os.chdir("/")
        warnings.resetwarnings()
        thread = threading.Thread(target=other.call, args=(lambda: None,))
        thread.start()
        thread.join()

    one.call(within)
    other.call(lambda: None)
    assert os.getcwd() == str(tmp_path)
    assert warnings.filters is filters


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (lambda: sys.exit(0), r"it raised SystemExit\(0\), which would end the trainer"),
        (lambda: sys.exit("no licence"), r"raised SystemExit\('no licence'\)"),
        (lambda: os._exit(3), r"called os\._exit\(3\)"),
    ],
)
def test_an_exit_is_an_error_in_words(guard: ProcessGuard, leave: Callable[[], None], said: str) -> None:
    with pytest.raises(HostedExit, match=said):
        guard.call(leave)
    with pytest.raises(HostedExit, match=said):
        call_guarded(leave)


@pytest.mark.process
@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda: None, 0),
        (lambda: sys.exit(7), 7),
        (sys.exit, 0),
        (lambda: sys.exit("no"), 1),
        (lambda: 1 / 0, 1),
        (lambda: os._exit(5), 5),
    ],
)
def test_a_child_that_returns_ends_where_the_call_does(
    guard: ProcessGuard, end: Callable[[], Any], status: int
) -> None:
    def fork() -> int:
        child = os.fork()
        if not child:
            end()
        return child

    before = os.getpid()
    try:
        child = guard.call(fork)
    finally:
        if os.getpid() != before:  # it went on
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status


def test_hosted_code_finds_pythons_own_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    from unity_bridge.process_guard import collect_garbage_seldom

    before = gc.get_threshold()
    collect_garbage_seldom()
    try:
        assert gc.get_threshold() != before
        call_guarded(lambda: None)
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*before)
