import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer_service.runs.lock import AlreadyLockedError, FileLock

HOLD = """
import sys
from pathlib import Path
from trainer_service.runs.lock import FileLock
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


@pytest.mark.skipif(os.name != "posix", reason="open files cannot be removed elsewhere")
def test_a_lock_file_removed_before_it_is_locked_is_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    opened: list[int] = []
    real_open = os.open

    def open_and_lose(*arguments: object) -> int:
        descriptor = real_open(*arguments)  # type: ignore[arg-type]  # passed on as it came
        opened.append(descriptor)
        if len(opened) == 1:
            path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    lock = FileLock(path)
    assert len(opened) == 2
    with pytest.raises(AlreadyLockedError):
        FileLock(path)
    lock.release()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FileLock(tmp_path / "nowhere" / "lock")
