"""Files of tensors from untrusted sources. Checkpoints as a whole are tested in test_checkpoint."""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_values import PLAIN_VALUES, same

from trainer_service.running.runs.archive import ArchiveError, read_tensors

MLAGENTS = Path(__file__).parents[2] / "mlagents_runs" / "hybrid" / "Hybrid" / "checkpoint.pt"
START, END = b"\x80\x02", b"."


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def write(path: Path, parts: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(f"archive/{name}", content)
    return path


def tensor(numbers: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """The opcodes of a float tensor in storage 0."""

    def whole(value: int) -> bytes:
        return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)

    def row(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(whole, values)) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    parts = (storage, whole(numbers), b"tQ", whole(offset), row(shape), row(stride))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + b"".join(parts) + b"\x89}tR"


KEPT: dict[str, Any] = {
    **PLAIN_VALUES,
    "numbers": [0, 1, -1, 255, 70_000, -(2**31), 2**63 - 1, -(2**63), 2.5, float("inf"), True, False, None],
    "long": [list(range(3000)), tuple(range(300))],
    "shared": 2 * [torch.arange(3)],
    "layer": torch.nn.Linear(2, 3).state_dict(),
    "ordered": OrderedDict(a=1),
}


def test_all_that_torch_reads_of_plain_values_is_read_alike(tmp_path: Path) -> None:
    torch.save(KEPT, tmp_path / "kept.pt")
    assert same(read_tensors(tmp_path / "kept.pt"), torch.load(tmp_path / "kept.pt", weights_only=True))
    assert same(read_tensors(MLAGENTS), torch.load(MLAGENTS, weights_only=True))


def repeated_list(levels: int) -> bytes:
    """[[[…] twice] twice] twice …: each level is a list that has the one before it two times."""
    words = b"(]q\x00"
    for _ in range(levels):
        words += b"](h\x00h\x00eq\x00"
    return words + b"t"


BY_TORCH = "its archive makes no sense"
"""torch refuses it, in its own words."""
HOSTILE: dict[str, tuple[bytes, str]] = {
    "a call": (b"cos\nmkdir\n(X\x08\x00\x00\x00explodedtR", "it names 'os.mkdir', and code is never loaded"),
    "a name with control characters": (b"cos\nsy\x07\n)R", "it names 'os.sy\\\\x07', and code is"),
    "a call of torch": (b"ctorch\nload\n)R", "it names 'torch.load', and code is never loaded"),
    "a gigabyte of nothing": (
        b"c__builtin__\nbytearray\nJ\0\0\0\x40\x85R",
        "it names '__builtin__.bytearray'",
    ),
    "a name on the stack": (b"X\x02\0\0\0osX\x05\0\0\0mkdir\x93", "it names 'STACK_GLOBAL'"),
    "another kind of tensor": (
        b"ctorch._utils\n_rebuild_sparse_tensor\n)R",
        "it names 'torch._utils._rebuild_sp",
    ),
    "what was built is called": (b"]q\x00)R", BY_TORCH),
    "an extension": (b"\x82\x01", "it names '1', and code is never loaded"),
    "a storage that claims more than is there": (tensor(2**40, (1,), (1,)), BY_TORCH),
    "a storage that claims less": (tensor(3, (1,), (1,)), BY_TORCH),
    "a tensor beyond its storage": (tensor(4, (2**40,), (1,)), BY_TORCH),
    "a tensor that repeats its numbers": (
        tensor(4, (2**40,), (0,)),
        "it holds a Tensor that is no plain value",
    ),
    "a tensor that begins behind its storage": (tensor(4, (1,), (1,), 4), BY_TORCH),
    "a tensor that strides out of its storage": (tensor(4, (2,), (2**47,)), BY_TORCH),
    "a negative shape": (tensor(4, (-1,), (1,)), BY_TORCH),
    "a negative stride": (tensor(4, (2,), (-1,)), BY_TORCH),
    "strides and shape of different lengths": (tensor(4, (2, 2), (1,)), BY_TORCH),
    "a storage that is not there": (tensor(4, (1,), (1,)).replace(b"\x000X", b"\x001X"), BY_TORCH),
    "a text without an end": (b"X\xff\xff\xff\xff", "its data.pkl makes no sense"),
    "a name without an end": (b"cos", "its data.pkl makes no sense"),
    "a list as key": (b"}]Ns", BY_TORCH),
    "a tuple as key": (b"})Ns", "it has a key that is neither text nor number"),
    "no end": (b"N" * 10, "its data.pkl makes no sense"),
    "a list that doubles forty times": (repeated_list(40), "it holds more than 262144 values"),
    "a list inside itself": (b"]q\x00h\x00a", "nested more than 50 levels deep"),
    "more words than a few tensors need": (b"N0" * 2**19, "which is too much"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_opcodes_and_values_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = HOSTILE[kind]
    end = b"" if kind == "no end" else END
    parts = {"data.pkl": START + words + end, "data/0": bytes(16), "version": b"3"}
    path = write(tmp_path / "theirs.pt", parts)
    with pytest.raises(ArchiveError, match=expected):
        read_tensors(path)
    assert not Path("exploded").exists()


def test_compressed_archives_are_refused_unread(tmp_path: Path) -> None:
    parts = {"data.pkl": START + tensor(2**20, (1,), (1,)) + END, "data/0": bytes(2**22)}
    path = write(tmp_path / "theirs.pt", parts, zipfile.ZIP_DEFLATED)
    with pytest.raises(ArchiveError, match="expected an archive that is not compressed"):
        read_tensors(path)


def test_parts_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.pt", {"data.pkl": START + b"N" + END, "data/0": bytes(1000)})
    with zipfile.ZipFile(path, "a") as archive:  # a directory that lists the same bytes a hundred times
        archive.filelist += 100 * [archive.getinfo("archive/data/0")]
        archive.writestr("archive/version", "3")
    with pytest.raises(ArchiveError, match="its parts claim"):
        read_tensors(path)


@pytest.mark.parametrize("zip64", [False, True])
def test_a_directory_of_a_million_parts_is_refused_unread(tmp_path: Path, zip64: bool) -> None:
    path = write(tmp_path / "theirs.pt", {"data.pkl": START + b"N" + END})
    whole = path.read_bytes()
    end, claim = whole[-22:], 10**8
    if zip64:
        record = b"PK\6\6" + bytes(36) + claim.to_bytes(8, "little") + bytes(8)
        place = (len(whole) - 22).to_bytes(8, "little")
        path.write_bytes(whole[:-22] + record + b"PK\6\7" + bytes(4) + place + bytes(4) + end)
    else:
        path.write_bytes(whole[:-10] + claim.to_bytes(4, "little") + end[16:])
    with pytest.raises(ArchiveError, match="its list of parts takes 100000000 bytes"):
        read_tensors(path)


def another_number(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[whole.index(bytes(12), whole.index(b"data/0"))] = 1
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "is not a zip archive to its end"),
        (lambda path: write(path, {"data/0": b""}), "expected one data.pkl, got 0"),
        (lambda path: write(path, {**parts_of(path), "byteorder": b"big"}), "little-endian"),
        (lambda path: path.write_bytes(pickle.dumps({})), "expected a zip archive, as torch writes"),
        (another_number, r"its part '.*data/0' is not what was written \(checksum\)"),
    ],
    ids=["cut", "no program", "big endian", "a pickle", "another number"],
)
def test_an_archive_that_is_none_of_torchs(
    tmp_path: Path, damage: Callable[[Path], None], expected: str
) -> None:
    path = tmp_path / "kept.pt"
    torch.save({"a": torch.zeros(3)}, path)
    damage(path)
    with pytest.raises(ArchiveError, match=expected):
        read_tensors(path)
