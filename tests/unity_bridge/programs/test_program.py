"""Real processes from start to end."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from unity_bridge.errors import LaunchError
from unity_bridge.programs import program as program_module
from unity_bridge.programs.child_process import stop_processes
from unity_bridge.programs.executables import Command
from unity_bridge.programs.log_size import cut_middle
from unity_bridge.programs.program import Program

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="execute permissions, signals and process groups"),
]


class Started:
    """A program and the news of its exit."""

    def __init__(
        self, program: Path, folder: Path, *, keep_log: bool = False, is_unity_build: bool = False
    ) -> None:
        self.news = threading.Event()
        self.program = Program(
            Command(env="test", executable=(str(program),), is_unity_build=is_unity_build),
            worker=0,
            port=6000,
            log_folder=folder,
            on_exit=self.news.set,
            keep_log=keep_log,
        )

    def wait(self) -> None:
        assert self.news.wait(30)


@pytest.fixture
def start(make_program: Callable[[str, str], Path], tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def make(source: str, **options: bool) -> Started:
        program = make_program(f"program-{len(started)}", source)
        started.append(Started(program, tmp_path, **options))
        return started[-1]

    yield make
    stop_processes([each.program for each in started], grace_s=0)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe: reading it waits for a program to come so far, and its end for the program to go."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_the_exit_code_and_the_last_lines_are_known(start: Callable[..., Started]) -> None:
    process = start(
        "import sys\nfor n in range(20): print('line', n)\nprint('oh no', file=sys.stderr)\nsys.exit(7)"
    )
    process.wait()
    assert not process.program.running
    assert process.program.exit_text() == "exited with code 7"
    assert process.program.last_lines(3) in (["line 18", "line 19", "oh no"], ["oh no", "line 18", "line 19"])


def test_programs_ignore_signals_of_schedulers_that_we_handle(start: Callable[..., Started]) -> None:
    def handle(number: int, frame: object) -> None:
        pass

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        process = start(
            "import signal\nfor number in (signal.SIGUSR1, signal.SIGUSR2): print(signal.getsignal(number).name)"
        )
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, before)
    process.wait()
    assert process.program.last_lines() == ["SIG_IGN", "SIG_DFL"]


def test_a_program_that_prints_without_end_fills_no_disk(
    start: Callable[..., Started], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    warnings: list[str] = []

    def warn(message: str, *values: object) -> None:
        warnings.append(message % values)
        told.set()

    cut = partial(cut_middle, most_bytes=2_000_000, head=1000, tail=20_000)
    monkeypatch.setattr(program_module, "cut_middle", cut)
    monkeypatch.setattr(program_module, "_logger", SimpleNamespace(warning=warn))
    process = start("print('begins')\nwhile True: print('x' * 1000)")
    assert told.wait(60)
    process.program.kill()
    process.wait()
    log = tmp_path / "Player-0.log"
    assert log.read_text().startswith("begins\n")
    assert "cut here" in log.read_text()
    (warning,) = warnings
    assert warning.startswith(f"A simulator prints very much: the middle of '{log}' is cut out")


def test_a_traceback_is_quoted_whole_however_long_it_is(start: Callable[..., Started]) -> None:
    source = """
        def fall(depth):
            if depth == 0:
                raise ValueError("the ball is lost")
            fall_on(depth)

        def fall_on(depth):
            fall(depth - 1)

        print("far away", *"x" * 20, sep=chr(10))
        fall(6)
    """
    started = start(textwrap.dedent(source))
    started.wait()
    lines = started.program.last_lines()
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "ValueError: the ball is lost")
    assert len(lines) > 20


def test_a_restarted_unity_build_keeps_its_previous_log(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    source = "import sys\nopen(sys.argv[sys.argv.index('-logFile') + 1], 'w').write('first')"
    start(source, is_unity_build=True).wait()
    start(source.replace("first", "second"), is_unity_build=True, keep_log=True).wait()
    assert (tmp_path / "Player-0-prev.log").read_text() == "first"
    assert (tmp_path / "Player-0.log").read_text() == "second"


def test_a_silent_unity_build_is_quoted_from_its_log(start: Callable[..., Started], tmp_path: Path) -> None:
    source = (
        "import sys\nopen(sys.argv[sys.argv.index('-logFile') + 1], 'w').write('Initialize engine\\nCrash!')"
    )
    process = start(source, is_unity_build=True)
    process.wait()
    assert process.program.last_lines() == ["Initialize engine", "Crash!"]
    assert (tmp_path / "Player-0.out").exists()


def test_stopping_asks_first(start: Callable[..., Started], pipe: Path) -> None:
    process = start(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        f"open({str(pipe)!r}, 'w').close()\nwhile True: time.sleep(60)"
    )
    pipe.read_text()
    stop_processes([process.program], grace_s=30)
    assert process.program.exit_text() == "exited with code 5"


def test_stopping_kills_what_does_not_listen(start: Callable[..., Started], pipe: Path) -> None:
    process = start(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pipe)!r}, 'w').close()\nwhile True: time.sleep(60)"
    )
    pipe.read_text()
    stop_processes([process.program], grace_s=0.1)
    process.wait()
    assert process.program.exit_text() == "was killed by SIGKILL"


@pytest.mark.parametrize(("wrapper_ends", "is_stopped"), [("child.wait()", True), ("sys.exit(1)", False)])
def test_the_children_of_a_wrapper_end_with_it(
    start: Callable[..., Started], pipe: Path, wrapper_ends: str, is_stopped: bool
) -> None:
    child = f"import time\npipe = open({str(pipe)!r}, 'w')\ntime.sleep(600)"
    process = start(
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"open({str(pipe)!r}).close()\n{wrapper_ends}"
    )
    with pipe.open() as childs_end:
        if is_stopped:
            stop_processes([process.program], grace_s=0)
        assert childs_end.read() == ""


def make_script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_script_without_an_interpreter_line_is_explained(tmp_path: Path) -> None:
    script = make_script(tmp_path / "simulate", "echo hello\n")
    with pytest.raises(LaunchError, match=r"cannot be started: .*first line that names its interpreter"):
        Started(script, tmp_path)


def test_a_program_without_permission_is_reported_with_the_remedy(tmp_path: Path) -> None:
    interpreter = make_script(tmp_path / "interpreter", "", mode=0o644)
    script = make_script(tmp_path / "simulate", f"#!{interpreter}\n")
    with pytest.raises(LaunchError, match=r"cannot be started: Permission denied; .* chmod -R 755"):
        Started(script, tmp_path)
