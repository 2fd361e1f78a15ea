import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer_service.running.runs.lock import AlreadyLockedError, FileLock

HOLD = """
import sys
from pathlib import Path
from trainer_service.running.runs.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until it is killed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.process
def test_a_second_process_is_refused_naming_the_first(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as process:
        with pytest.raises(AlreadyLockedError) as caught:
            FileLock(tmp_path / "lock")
        assert caught.value.holder == process.pid


@pytest.mark.process
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as process:
        process.kill()
        process.wait()
        assert (tmp_path / "lock").exists()
        FileLock(tmp_path / "lock").release()


def test_one_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(AlreadyLockedError) as caught:
        FileLock(tmp_path / "lock")
    assert caught.value.holder == os.getpid()
    lock.release()


def test_releasing_removes_the_file_and_lets_the_next_in(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "lock")
    first.release()
    assert not (tmp_path / "lock").exists()
    second = FileLock(tmp_path / "lock")
    first.release()  # once more does not take the file of the second away
    assert (tmp_path / "lock").exists()
    second.release()


def test_where_nothing_can_be_locked_every_claim_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock" if os.name == "posix" else "msvcrt.locking", refuse)
    FileLock(tmp_path / "lock").release()
    FileLock(tmp_path / "lock").release()


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        FileLock(tmp_path / "file" / "lock")
