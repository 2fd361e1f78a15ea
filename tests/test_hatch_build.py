"""The hook that compiles the kernel into a wheel, without the builder around it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
from loaded_files import module_of

from trainer_service.learning.kernels.compiled import build

T = TypeVar("T")


class Interface(Generic[T]):
    """The part of hatchling's class that the hook uses."""

    def __init__(self, root: Path, said: list[str]) -> None:
        self.root = str(root)
        self.app = SimpleNamespace(display_warning=said.append)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def hook(repository: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    names = ["hatchling", "builders", "hooks", "plugin", "interface"]
    for place in range(len(names)):
        monkeypatch.setitem(sys.modules, ".".join(names[: place + 1]), ModuleType(names[place]))
    monkeypatch.setattr(sys.modules[".".join(names)], "BuildHookInterface", Interface, raising=False)
    return module_of(repository / "hatch_build.py").CompiledKernelHook(repository, said)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is there, and fails."""
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'cc: error: cannot execute cc1' >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setattr(sys, "platform", "linux")


def data() -> dict[str, Any]:
    return {"force_include": {}}


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="on Windows it is not built")
def test_a_wheel_that_lost_its_kernel_says_so(
    hook: Any, said: list[str], compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.WANTED, raising=False)
    built = data()
    hook.initialize("standard", built)
    hook.finalize("standard", built, "")
    assert built == data(), "it is for every platform"
    (warning,) = said
    assert warning.startswith("NO COMPILED KERNEL is in this wheel, which is for every platform, because: ")
    assert "cannot execute cc1" in warning


@pytest.mark.process
@pytest.mark.parametrize("version", ["standard", "editable"])
@pytest.mark.skipif(sys.platform == "win32", reason="on Windows it is not built")
def test_a_kernel_that_was_asked_for_is_there_or_nothing_is(
    hook: Any, said: list[str], compiler: None, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv(build.WANTED, "1")
    with pytest.raises(RuntimeError, match=r"TRAINER_SERVICE_COMPILE=1 asks for the compiled kernel: "):
        hook.initialize(version, data())
    hook.finalize(version, data(), "")
    assert said == []


def test_a_kernel_that_is_not_wanted_is_not_compiled(
    hook: Any, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.WANTED, "0")
    hook.initialize("standard", data())
    hook.finalize("standard", data(), "")
    assert "TRAINER_SERVICE_COMPILE=0 is set in the environment" in said[0]
