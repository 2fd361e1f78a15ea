"""Finding programs as ML-Agents does, and real processes from start to end."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unity_bridge.errors import LaunchError
from unity_bridge.launcher import (
    Command,
    Program,
    RestartBudget,
    find_executable,
    resolve_program,
    stop_programs,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="execute permissions, signals and process groups")


def touch(path: Path, *, executable: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("env", ["sim:3dball", "gym:CartPole-v1", "pettingzoo:mpe2.simple_spread_v3"])
def test_bundled_environments_run_in_our_own_simulator(env: str) -> None:
    command = resolve_program(env, ["--agents", "3"], no_graphics=True)
    assert command.executable == (sys.executable, "-m", "unity_bridge.simulators", env)
    line = command.line(worker=0, port=6000, log=Path("Player-0.log"))
    assert line[4:] == ["--mlagents-port", "6000", "--agents", "3"]


def test_a_scheme_without_a_name_is_refused() -> None:
    with pytest.raises(LaunchError, match="env 'gym:': expected a name after 'gym:'"):
        resolve_program("gym:")


@pytest.mark.parametrize("written", ["Ball.x86_64", "Ball", "Ball.exe", "Ball.x86", "Ball.app"])
def test_linux_players_are_found_with_or_without_any_suffix(tmp_path: Path, written: str) -> None:
    player = touch(tmp_path / "Ball.x86_64")
    touch(tmp_path / "Ball")
    assert find_executable(str(tmp_path / written), "Linux") == player


def test_any_other_executable_is_taken_as_it_is(tmp_path: Path) -> None:
    program = touch(tmp_path / "simulate.py")
    assert find_executable(str(program), "Linux") == program


def test_relative_paths_start_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "builds" / "Ball.x86_64")
    monkeypatch.chdir(tmp_path)
    assert resolve_program("builds/Ball", system="Linux").executable == (
        str(tmp_path / "builds/Ball.x86_64"),
    )


@pytest.mark.parametrize("written", ["Ball.app", "Ball"])
@pytest.mark.parametrize("binary", ["Ball", "Another Name"])
def test_macos_players_are_found_inside_their_bundle(tmp_path: Path, written: str, binary: str) -> None:
    player = touch(tmp_path / "Ball.app" / "Contents" / "MacOS" / binary)
    assert find_executable(str(tmp_path / written), "Darwin") == player


def test_windows_players_are_found_by_name_or_in_their_folder(tmp_path: Path) -> None:
    player = touch(tmp_path / "build" / "Ball.exe", executable=False)
    touch(tmp_path / "build" / "Absent" / "UnityCrashHandler64.exe")
    touch(tmp_path / "build" / "UnityCrashHandler64.exe")
    assert find_executable(str(tmp_path / "build" / "Ball"), "Windows") == player
    assert find_executable(str(tmp_path / "build"), "Windows") == player


def test_a_missing_program_is_reported_with_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no such program") as failure:
        resolve_program(str(tmp_path / "Ball"), system="Linux")
    for suffix in (".x86_64", ".x86", ""):
        assert str(tmp_path / f"Ball{suffix}") in str(failure.value)
    assert "sim:NAME" in str(failure.value)


def test_a_folder_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"{tmp_path} is a folder, expected the program inside it"):
        resolve_program(str(tmp_path), system="Linux")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Ball.x86_64", "run: chmod [+]x "),
        ("ball.py", "begin it with the line '#!/usr/bin/env python3' and run"),
    ],
)
def test_a_program_that_is_not_executable_is_reported_with_the_cure(
    tmp_path: Path, name: str, hint: str
) -> None:
    touch(tmp_path / name, executable=False)
    with pytest.raises(LaunchError, match=f"{name} is not executable; {hint}"):
        resolve_program(str(tmp_path / name), system="Linux")


def test_a_unity_build_gets_its_flags_in_mlagents_order(tmp_path: Path) -> None:
    player = touch(tmp_path / "Ball.x86_64")
    (tmp_path / "Ball_Data").mkdir()
    command = resolve_program(str(player), ["--level", "3"], no_graphics=True, system="Linux")
    assert command.line(worker=2, port=5007, log=tmp_path / "Player-2.log") == [
        *(str(player), "-nographics", "-batchmode", "--mlagents-port", "5007"),
        *("-logFile", str(tmp_path / "Player-2.log"), "--level", "3"),
    ]


def test_a_log_file_that_the_user_chose_stays(tmp_path: Path) -> None:
    player = touch(tmp_path / "Ball.x86_64")
    touch(tmp_path / "UnityPlayer.so")
    command = resolve_program(str(player), ["-LogFile", "mine.log"], system="Linux")
    assert command.is_unity_build
    line = command.line(worker=0, port=5005, log=tmp_path / "Player-0.log")
    assert line == [str(player), "--mlagents-port", "5005", "-LogFile", "mine.log"]


def test_other_programs_get_the_port_only(tmp_path: Path) -> None:
    program = touch(tmp_path / "simulate")
    line = resolve_program(str(program), system="Linux").line(worker=0, port=5005, log=tmp_path / "log")
    assert line == [str(program), "--mlagents-port", "5005"]


@pytest.mark.parametrize(("worker", "hidden"), [(0, False), (1, True)])
def test_a_monitor_leaves_graphics_to_the_first_simulator(tmp_path: Path, worker: int, hidden: bool) -> None:
    program = touch(tmp_path / "simulate")
    command = resolve_program(str(program), no_graphics_monitor=True, system="Linux")
    line = command.line(worker=worker, port=5005, log=tmp_path / "log")
    assert ("-nographics" in line and "-batchmode" in line) == hidden


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
    stop_programs([each.program for each in started], grace_s=0)


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


def test_a_signal_is_called_by_its_name(start: Callable[..., Started]) -> None:
    process = start("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    process.wait()
    assert process.program.exit_text() == "was killed by SIGSEGV"


def test_what_was_printed_before_a_kill_is_not_lost_in_a_buffer(start: Callable[..., Started]) -> None:
    process = start("import os\nprint('nearly there')\nos.kill(os.getpid(), 9)")
    process.wait()
    assert process.program.last_lines() == ["nearly there"]


def test_the_log_of_a_restarted_program_follows_its_predecessors(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    start("print('first')").wait()
    second = start("print('second')", keep_log=True)
    second.wait()
    assert second.program.last_lines() == ["second"]
    assert (tmp_path / "Player-0.log").read_text() == "first\nsecond\n"


def test_a_unity_build_that_prints_nothing_is_quoted_from_its_log(
    start: Callable[..., Started], tmp_path: Path
) -> None:
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
    stop_programs([process.program], grace_s=30)
    assert process.program.exit_text() == "exited with code 5"


def test_stopping_kills_what_does_not_listen(start: Callable[..., Started], pipe: Path) -> None:
    process = start(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pipe)!r}, 'w').close()\nwhile True: time.sleep(60)"
    )
    pipe.read_text()
    stop_programs([process.program], grace_s=0.1)
    process.wait()
    assert process.program.exit_text() == "was killed by SIGKILL"


@pytest.mark.parametrize("wrapper_ends", ["child.wait()", "sys.exit(1)"])
def test_the_children_of_a_wrapper_end_with_it(
    start: Callable[..., Started], pipe: Path, wrapper_ends: str
) -> None:
    child = f"import time\npipe = open({str(pipe)!r}, 'w')\ntime.sleep(600)"
    process = start(
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"open({str(pipe)!r}).close()\n{wrapper_ends}"
    )
    with pipe.open() as childs_end:
        stop_programs([process.program], grace_s=0)
        assert childs_end.read() == ""


def test_a_script_without_an_interpreter_line_is_explained(tmp_path: Path) -> None:
    script = touch(tmp_path / "simulate")
    script.write_text("echo hello\n")
    with pytest.raises(LaunchError, match=r"cannot be started: .*first line that names its interpreter"):
        Started(script, tmp_path)


def test_a_script_whose_interpreter_is_missing_is_explained(tmp_path: Path) -> None:
    script = touch(tmp_path / "simulate")
    script.write_text("#!/no/such/python\n")
    with pytest.raises(
        LaunchError, match=r"cannot be started: .*interpreter that its first line names is missing"
    ):
        Started(script, tmp_path)


def test_programs_reach_this_machine_without_the_users_proxy(
    start: Callable[..., Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "example.org")
    process = start("import os\nprint(os.environ['no_grpc_proxy'])")
    process.wait()
    assert process.program.last_lines() == ["example.org,localhost,127.0.0.1"]


def test_restarts_are_limited_over_a_lifetime() -> None:
    budget = RestartBudget(lifetime=2, per_period=-1, period_s=60)
    assert [budget.spend(now) for now in (0, 1)] == ["", ""]
    assert budget.spend(1000) == "it was already started again 2 of at most 2 times"


def test_restarts_are_limited_within_any_period() -> None:
    budget = RestartBudget(lifetime=-1, per_period=1, period_s=60)
    assert budget.spend(0) == ""
    assert budget.spend(59.9) == "it was already started again 1 of at most 1 times in the last 60 s"
    assert budget.spend(60) == ""


def test_minus_one_means_no_limit() -> None:
    budget = RestartBudget(lifetime=-1, per_period=-1, period_s=60)
    assert [budget.spend(0.0) for _ in range(100)] == [""] * 100
