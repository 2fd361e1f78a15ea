import errno
import os
import subprocess
import sys
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


@pytest.mark.process
def test_another_process_holds_it_until_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(AlreadyLockedError) as caught:
                FileLock(tmp_path / "lock")
            assert caught.value.holder == holder.pid
        finally:
            holder.kill()
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
