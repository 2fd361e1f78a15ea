"""Replay files: what a save writes of them, and files from untrusted sources. Learners are resumed elsewhere."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from replay_files import save_replay_file

from trainer_service.errors import UserError
from trainer_service.learning.replay import lent_rows
from trainer_service.learning.replay.ring import Ring
from trainer_service.running.runs.files import Replacement, SaveError
from trainer_service.running.runs.replay_file import ReplayFile, ReplayStamp


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_replay_file(
        {"steps": np.arange(6.0), "flags": np.zeros((2, 3), np.bool_), "none": np.zeros(0)},
        tmp_path / "r.npz",
    )
    return tmp_path / "r.npz"


def loaded(path: Path) -> dict[str, Any]:
    kept: dict[str, Any] = {}

    def keep(arrays: Mapping[str, Any]) -> None:
        kept.update({name: arrays[name] for name in ("steps", "flags", "none")})

    ReplayFile(path).load(keep)
    return kept


def rewritten(
    path: Path,
    change: Callable[[bytes], bytes],
    part: str = "steps.npy",
    compression: int = zipfile.ZIP_STORED,
) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, change(content) if name == part else content)


def header(shape: str, kind: str = "<f8") -> Callable[[bytes], bytes]:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return lambda content: b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content[-48:]


def code(_: bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}]), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            header("(1099511627776,)"),
            r"'steps.npy' claims to be \(1099511627776,\) of float64, which it is not",
        ),
        (header("(-6,)"), "which it is not"),
        (header("(6, 'x')"), "cannot be used"),
        (header("(6,)", "|O"), "holds Python objects, which are never unpickled"),
        (code, "holds Python objects, which are never unpickled"),
        (lambda content: content[:-1], "which it is not"),
        (lambda _: b"", "cannot be used"),
        (lambda _: b"\x93NUMPY\x09\x00" + bytes(200), "cannot be used"),
    ],
)
def test_an_array_of_a_false_size_is_refused_before_allocation(
    path: Path, change: Callable[[bytes], bytes], expected: str
) -> None:
    rewritten(path, change)
    with pytest.raises(UserError, match=expected) as caught:
        loaded(path)
    assert str(path) in str(caught.value)


Columns = dict[str, NDArray[Any]]


class Buffer:
    """A ring with a trajectory for every two rows, priorities beside them, and the file that it is saved in."""

    def __init__(self, folder: Path, capacity: int = 40, *, wide: int = 4) -> None:
        steps = {"segment": np.empty(2, np.int64), "seen": np.empty((2, wide), np.float32)}
        self.ring = Ring(capacity, steps, {"terminated": np.empty(64, np.bool_)})
        self.file = ReplayFile(folder / "replay.npz")
        self.added, self.wide = 0, wide

    def add(self, rows: int, dtype: type = np.float32) -> None:
        for _ in range(rows // 2):
            seen = np.full((2, self.wide), self.added, dtype)
            steps = {"segment": np.full(2, self.added // 2), "seen": seen}
            self.ring._append(steps, {"terminated": np.array([self.added % 4 == 0])})
            self.added += 2

    def state(self) -> Columns:
        return {**self.ring.state(), "priorities": np.arange(float(len(self.ring)))}

    def save(self, step: int = 0, between: Callable[[], None] = lambda: None) -> None:
        write = self.file.hold(self.state())
        between()
        with Replacement() as files:
            write(files, ReplayStamp(step, 7))

    def load(self) -> None:
        assert self.file.load(self._take) is not None

    def _take(self, arrays: Mapping[str, Any]) -> None:
        self.ring.load_state(arrays)
        self.added = 2 * int(self.ring.state()["counters"][2])


def plain(state: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, list[Any]]]:
    return {name: (str(array.dtype), array.tolist()) for name, array in state.items()}


def saved(path: Path) -> dict[str, tuple[str, list[Any]]]:
    """What a file and those beside it hold, but for what they say of the save."""
    kept: Columns = {}
    ReplayFile(path).load(kept.update)
    return plain({name: array for name, array in kept.items() if not name.startswith("saved.")})


def rows_files(folder: Path, kind: str = "steps") -> dict[str, tuple[int, int]]:
    """Files of rows by their names, with what tells whether they were written anew."""
    paths = sorted(folder.glob(f"replay-*-{kind}-*.npz"))
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of the steps above in a block."""
    monkeypatch.setattr(lent_rows, "BLOCK_BYTES", 10 * 24)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("before", [0, 10, 24, 66])
@pytest.mark.parametrize("more", [0, 2, 40])
def test_a_buffer_is_saved_whole_however_much_changed_since(tmp_path: Path, before: int, more: int) -> None:
    buffer = Buffer(tmp_path)
    for count in (before, more):
        buffer.add(count)
        expected = plain(buffer.state())
        buffer.save(between=lambda: buffer.add(6))
        assert saved(buffer.file.path) == expected
    again = Buffer(tmp_path)
    again.load()
    assert plain(again.state()) == expected


@pytest.mark.usefixtures("small_blocks")
def test_a_save_writes_the_blocks_that_changed_and_removes_what_they_replace(tmp_path: Path) -> None:
    buffer = Buffer(tmp_path)
    buffer.add(36)
    buffer.save(100)
    first = rows_files(tmp_path)
    assert list(first) == [f"replay-100-steps-{row}.npz" for row in (0, 10, 20, 30)]
    buffer.add(2)
    buffer.save(102)
    second = rows_files(tmp_path)
    assert list(second) == [*list(first)[:3], "replay-102-steps-30.npz"]
    assert all(second[name] == first[name] for name in list(first)[:3])
    buffer.add(12)  # over the end, up to the last row of the first block
    buffer.save(114)
    third = rows_files(tmp_path)
    assert list(third) == [
        "replay-100-steps-10.npz",
        "replay-100-steps-20.npz",
        "replay-114-steps-0.npz",
        "replay-114-steps-30.npz",
    ]
    buffer.save(115)
    assert rows_files(tmp_path) == third
    assert saved(buffer.file.path) == plain(buffer.state())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rows", [36, 62], ids=["not full", "wrapped"])
def test_the_first_save_of_a_resumed_run_leaves_what_is_on_the_disk(tmp_path: Path, rows: int) -> None:
    buffer = Buffer(tmp_path)
    buffer.add(rows)
    buffer.save(100)
    before = {**rows_files(tmp_path), **rows_files(tmp_path, "finals")}
    resumed = Buffer(tmp_path)
    resumed.load()
    resumed.save(100)
    assert {**rows_files(tmp_path), **rows_files(tmp_path, "finals")} == before
    for each in (buffer, resumed):
        each.add(4)
    resumed.save(104)
    assert saved(resumed.file.path) == plain(buffer.state())
    assert 2 <= len(rows_files(tmp_path).keys() & before.keys()) < len(rows_files(tmp_path))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("capacity", [30, 60])
def test_a_buffer_of_another_capacity_is_written_anew(tmp_path: Path, capacity: int) -> None:
    buffer = Buffer(tmp_path)
    buffer.add(62)
    buffer.save(100)
    resumed = Buffer(tmp_path, capacity)
    resumed.load()
    resumed.save(100)
    assert saved(resumed.file.path) == plain(resumed.state())
    assert not [name for name in rows_files(tmp_path) if name.startswith("replay-100-")]


@pytest.mark.usefixtures("small_blocks")
def test_files_of_a_buffer_that_was_not_loaded_are_not_taken_for_its_own(tmp_path: Path) -> None:
    old = Buffer(tmp_path)
    old.add(40)
    old.save(100)
    new = Buffer(tmp_path)
    new.add(20)
    new.added += 1000
    new.add(20)
    new.save(40)
    assert saved(new.file.path) == plain(new.state())
    assert {name.split("-")[1] for name in rows_files(tmp_path)} == {"101"}  # none was written over


class SmallDisk:
    """A disk that is full after so many files."""

    def __init__(self, room: int) -> None:
        self.room = room

    def sync(self, _: int) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("room", [0, 2])
def test_a_save_that_fails_leaves_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    buffer = Buffer(tmp_path)
    buffer.add(36)
    buffer.save(100)
    before, content = sorted(tmp_path.iterdir()), saved(buffer.file.path)
    buffer.add(20)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", SmallDisk(room).sync)
        with pytest.raises(SaveError, match="No space left"):
            buffer.save(120)
    assert (sorted(tmp_path.iterdir()), saved(buffer.file.path)) == (before, content)
    buffer.save(120)
    assert saved(buffer.file.path) == plain(buffer.state())


@pytest.fixture
def files(tmp_path: Path, small_blocks: None) -> Path:
    buffer = Buffer(tmp_path)
    buffer.add(36)
    buffer.save(100)
    return buffer.file.path


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(np.full(4, 14, np.float32).tobytes())] ^= 1
    path.write_bytes(content)


def add_a_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def take_that_of_other_rows(path: Path) -> None:
    path.write_bytes(path.with_name("replay-100-steps-20.npz").read_bytes())


def claim_more(path: Path) -> None:
    rewritten(path, header("(1099511627776,)"), "steps.seen.npy")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (Path.unlink, "is missing"),
        (flip_a_bit, "Bad CRC-32"),
        (add_a_byte, r"it has \d+ bytes, \d+ were written"),
        (take_that_of_other_rows, r"it is not what was written \(checksum\)"),
        (claim_more, "it has"),
    ],
)
def test_a_damaged_file_of_rows_is_named(files: Path, damage: Callable[[Path], None], expected: str) -> None:
    damage(files.with_name("replay-100-steps-10.npz"))
    with pytest.raises(UserError, match=expected) as caught:
        saved(files)
    assert str(caught.value).startswith(f"replay buffer '{files}' cannot be used: 'replay-100-steps-10.npz'")
    assert str(caught.value).endswith("Remove it to continue with an empty one")


LISTED = [[0, 10, 100, 1, 1], [10, 20, 100, 1, 1]]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (np.zeros((0, 5), np.int64), "is no list of files"),
        (np.zeros((2, 4), np.int64), "is no list of files"),
        (np.zeros((2, 5)), "is no list of files"),
        (np.array(LISTED), r"'replay-100-steps-0.npz': it has \d+ bytes, 1 were written"),
        (np.array([[0, 2**62, 100, 1, 1]]), "it has"),
        (np.array(LISTED[1:]), "rows 10 to 20 do not follow on 0"),
        (np.array([[0, 0, 100, 1, 1]]), "rows 0 to 0 do not follow on 0"),
        (np.array([[0, 10, -5, 1, 1]]), "'replay--5-steps-0.npz' is missing"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(files: Path, listed: NDArray[Any], expected: str) -> None:
    with np.load(files) as arrays:
        content = dict(arrays)
    np.savez(files, **{**content, "saved.rows.steps": listed})
    with pytest.raises(UserError, match=expected):
        saved(files)


def test_a_list_leads_to_no_other_folder(files: Path) -> None:
    with np.load(files) as arrays:
        content = dict(arrays)
    content["saved.rows.../x"] = content.pop("saved.rows.steps")
    np.savez(files, **content)
    with pytest.raises(UserError, match="cannot be used"):
        saved(files)
