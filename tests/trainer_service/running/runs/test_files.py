import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_service.running.runs.files import SaveError, remove_leftovers, with_short_paths, write_atomic


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def exit_code(script: str, path: Path) -> int:
    """Runs a Python script in a process of its own."""
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("data", "stored"),
    [(b"\x00\xff", b"\x00\xff"), ("Gr\u00f6\u00dfe\n", "Gr\u00f6\u00dfe\n".encode()), (b"", b"")],
)
def test_the_file_holds_exactly_the_data(tmp_path: Path, data: bytes | str, stored: bytes) -> None:
    write_atomic(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == stored


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_disk_that_fills_up_leaves_the_previous_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    write_atomic(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, full)
    with pytest.raises(SaveError) as caught:
        write_atomic(path, b"new")
    assert str(path) in str(caught.value)
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["checkpoint.safetensors"]


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on the size of files")
@pytest.mark.process
def test_a_write_that_fails_halfway_leaves_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(b"old")
    script = """
import resource, sys
from pathlib import Path
from trainer_service.running.runs.files import SaveError, write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomic(Path(sys.argv[1]), bytes(2000))
except SaveError:
    sys.exit(7)
"""
    assert exit_code(script, path) == 7
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["checkpoint.safetensors"]


def test_leftovers_of_killed_writers_go_and_everything_else_stays(tmp_path: Path) -> None:
    for name in (".checkpoint.safetensors.4711.tmp", "notes.tmp", ".hidden", ".x.tmp"):
        (tmp_path / name).write_text("x")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".hidden", ".x.tmp", "notes.tmp"]


@pytest.mark.process
def test_leftovers_of_a_killed_writer_are_recognised(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from trainer_service.running.runs.files import write_atomic
os.fsync = lambda _: os._exit(9)
write_atomic(Path(sys.argv[1]), "half")
"""
    assert exit_code(script, tmp_path / "file") == 9
    assert len(names(tmp_path)) == 1
    remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_messages_name_files_from_the_working_folder_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ours, others = tmp_path / "results" / "a run", Path("/elsewhere") / tmp_path.relative_to("/") / "results"
    text = f"cannot write '{ours}': full; {ours} and '{others}', --env={ours}, '{tmp_path}' as they are"
    assert with_short_paths(text) == (
        f"cannot write 'results/a run': full; results/a run and '{others}', --env={ours}, '{tmp_path}' as they are"
    )


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such mask")
def test_the_owner_may_use_files_whatever_mask_an_environment_sets_meanwhile(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        write_atomic(tmp_path / "models" / "policy.onnx", b"model")
    finally:
        os.umask(before)
    assert (tmp_path / "models").stat().st_mode & 0o700 == 0o700
    assert (tmp_path / "models" / "policy.onnx").stat().st_mode & 0o600 == 0o600
