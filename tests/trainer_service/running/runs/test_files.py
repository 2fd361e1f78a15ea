import errno
import os
from pathlib import Path

import pytest

from trainer_service.running.runs.files import SaveError, remove_leftovers, with_short_paths, write_atomic


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


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


def test_leftovers_of_killed_writers_go_and_everything_else_stays(tmp_path: Path) -> None:
    for name in (".checkpoint.safetensors.4711.tmp", "notes.tmp", ".hidden", ".x.tmp"):
        (tmp_path / name).write_text("x")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".hidden", ".x.tmp", "notes.tmp"]


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
