"""The kernel's build: with a compiler, without one, and with one that fails; and what is made of its outcome."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainer_service.learning.kernels.compiled import build
from trainer_service.learning.kernels.compiled.library import UnavailableError, load


@pytest.mark.process
@pytest.mark.parametrize(
    ("compiler", "says"),
    [("no-such-compiler --at all", "no-such-compiler cannot be run"), ("false", "false failed: no message")],
)
def test_a_compiler_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, says: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.delenv(build.WANTED, raising=False)
    monkeypatch.setattr(build, "processor", lambda: "x86_64")
    with pytest.raises(build.BuildError, match=says):
        build.build(tmp_path / "kernel.so")
    assert not list(tmp_path.iterdir())


def test_nothing_is_compiled_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.WANTED, "0")
    with pytest.raises(build.BuildError, match="TRAINER_SERVICE_COMPILE=0 is set"):
        build.build(tmp_path / "kernel.so")


def test_no_compiler_and_unknown_processors_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(build.WANTED, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(build, "processor", lambda: "x86_64")
    with pytest.raises(build.BuildError, match="there is no C compiler"):
        build.build(tmp_path / "kernel.so")
    monkeypatch.setattr(build, "processor", lambda: "vax")
    with pytest.raises(build.BuildError, match="no code for processors of the kind vax"):
        build.build(tmp_path / "kernel.so")


def test_the_command_says_in_a_line_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "processor", lambda: "vax")
    monkeypatch.setattr(build, "LIBRARY", tmp_path / "kernel.so")
    assert (build.main([]), build.main(["--check"])) == (1, 0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("No compiled kernel" in line and "Everything works without it" in line for line in lines)
    (tmp_path / "kernel.so").touch()
    assert build.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_a_library_that_is_missing_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="none was built"):
        load(tmp_path / "missing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(UnavailableError, match="cannot be loaded"):
        load(tmp_path / "text.so")


def test_a_library_of_another_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not build.LIBRARY.is_file():
        pytest.skip("no compiled kernel was built here")
    monkeypatch.setattr(build, "source_digest", lambda: 7)
    load.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="another version of its source"):
            load()
    finally:
        load.cache_clear()
