"""A library is used only if it computes what torch does, and faster."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest

from trainer_service.learning.kernels.compiled import check
from trainer_service.learning.kernels.compiled.library import CompiledLibrary, UnavailableError, load


@pytest.fixture
def library() -> CompiledLibrary:
    try:
        return list(load().values())[-1]
    except UnavailableError as error:
        pytest.skip(f"no compiled kernel: {error}")


def test_a_library_that_was_built_here_passes(library: CompiledLibrary) -> None:
    assert check.fault_of(library) is None


def test_a_wrong_number_is_found(library: CompiledLibrary) -> None:
    def wrong(*arguments: Any) -> int:
        done: int = library.steps(*arguments)
        ctypes.c_float.from_address(arguments[7]._obj.gradient).value += 0.1
        return done

    assert "its gradient is wrong" in str(check.fault_of(replace(library, steps=wrong)))


def test_a_wrong_number_is_found_with_memory_alone(library: CompiledLibrary) -> None:
    def wrong(*arguments: Any) -> int:
        done: int = library.steps(*arguments)
        if arguments[5] is not None:  # sequences
            ctypes.c_float.from_address(arguments[7]._obj.gradient).value += 0.1
        return done

    assert "its gradient of an LSTM is wrong" in str(check.fault_of(replace(library, steps=wrong)))


def test_one_slower_than_torch_is_found(library: CompiledLibrary) -> None:
    def slow(*arguments: Any) -> int:
        return min(library.steps(*arguments) for _ in range(400))

    assert "µs, in torch" in str(check.fault_of(replace(library, steps=slow)))


def test_the_fastest_that_is_fit_is_chosen_and_others_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, wide = (CompiledLibrary(name, None, None, None) for name in ("AVX2", "AVX-512"))
    faults = {"AVX-512": "it is wrong", "AVX2": None}
    monkeypatch.setattr(check, "load", lambda: {"avx2": plain, "avx512": wide})
    monkeypatch.setattr(check, "fault_of", lambda library: faults[library.name])
    assert check.checked_library.__wrapped__() is plain
    assert "for AVX-512 is not used: it is wrong" in caplog.text
    faults["AVX2"] = "so is this"
    with pytest.raises(UnavailableError, match="not fit for use"):
        check.checked_library.__wrapped__()
