"""Replay files from untrusted sources. Resuming from saved ones is tested with the learners."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer_service.errors import UserError
from trainer_service.runs.replay_file import load_replay_file, save_replay_file


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

    load_replay_file(path, keep)
    return kept


def test_saved_content_is_loaded_unchanged(path: Path) -> None:
    kept = loaded(path)
    assert kept["steps"].tolist() == [0, 1, 2, 3, 4, 5]
    assert kept["flags"].shape == (2, 3)
    assert kept["none"].shape == (0,)


def rewritten(path: Path, change: Callable[[bytes], bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, change(content) if name == "steps.npy" else content)


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


def test_compressed_files_are_refused(path: Path) -> None:
    rewritten(path, lambda _: bytes(2**22), zipfile.ZIP_DEFLATED)
    with pytest.raises(UserError, match="expected an archive that is not compressed"):
        loaded(path)


@pytest.mark.parametrize("error", [MemoryError, OverflowError, AttributeError, RuntimeError])
def test_errors_of_loading_the_arrays_become_messages(path: Path, error: type[Exception]) -> None:
    def refuse(_: Mapping[str, Any]) -> None:
        raise error("no")

    with pytest.raises(UserError, match=r"cannot be used: no\. Remove it"):
        load_replay_file(path, refuse)
