"""Finding programs as ML-Agents does on each system, and their command lines."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from unity_bridge.errors import LaunchError
from unity_bridge.programs.executables import find_executable, resolve_program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="execute permissions")


def touch(path: Path, *, executable: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    "env", ["sim:3dball", "gym:CartPole-v1", "gymma:rware-tiny-4ag-v2", "pettingzoo:mpe2.simple_spread_v3"]
)
def test_bundled_environments_run_in_our_own_simulator(env: str) -> None:
    command = resolve_program(env, ["--agents", "3"], no_graphics=True)
    assert command.executable == (sys.executable, "-m", "unity_bridge.simulators", env)
    line = command.line(worker=0, port=6000, log=Path("Player-0.log"))
    assert line[4:] == ["--mlagents-port", "6000", "--agents", "3"]


@pytest.mark.parametrize("written", ["Ball.x86_64", "Ball", "Ball.exe", "Ball.x86", "Ball.app", "Ball "])
def test_linux_players_are_found_with_or_without_any_suffix(tmp_path: Path, written: str) -> None:
    player = touch(tmp_path / "Ball.x86_64")
    touch(tmp_path / "Ball.x86")
    touch(tmp_path / "Ball")
    assert find_executable(f"{tmp_path}/{written}", "Linux") == player


@pytest.mark.parametrize("written", ["Ball.x86_64", "Ball", "Ball.x86"])
@pytest.mark.parametrize("there", [["Ball.x86", "Ball"], ["Ball"]])
def test_linux_players_of_other_names_are_next(tmp_path: Path, there: list[str], written: str) -> None:
    players = [touch(tmp_path / name) for name in there]
    assert find_executable(str(tmp_path / written), "Linux") == players[0]


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


def test_a_bundles_program_has_its_name_and_is_not_hidden(tmp_path: Path) -> None:
    binaries = tmp_path / "Ball.app" / "Contents" / "MacOS"
    touch(binaries / ".DS_Store", executable=False)
    other = touch(binaries / "Another")
    assert find_executable(str(tmp_path / "Ball"), "Darwin") == other
    named = touch(binaries / "Ball")
    assert find_executable(str(tmp_path / "Ball"), "Darwin") == named


@pytest.mark.parametrize("written", ["Ball", "Ball.exe", "Ball.EXE", "Ball.x86_64"])
def test_windows_players_are_found_with_or_without_any_suffix(tmp_path: Path, written: str) -> None:
    player = touch(tmp_path / "Ball.exe", executable=False)
    (tmp_path / "Ball").mkdir()
    assert find_executable(str(tmp_path / written), "Windows") == player


def test_windows_players_are_found_in_their_folder(tmp_path: Path) -> None:
    player = touch(tmp_path / "build" / "UnityEnvironment.exe", executable=False)
    touch(tmp_path / "build" / "UnityCrashHandler64.exe")
    touch(tmp_path / "build" / "UnityPlayer.dll")
    command = resolve_program(str(tmp_path / "build"), system="Windows")
    assert command.executable == (str(player),)
    assert command.is_unity_build


def test_a_missing_program_is_reported_with_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no such program") as failure:
        resolve_program(str(tmp_path / "Ball"), system="Linux")
    for suffix in (".x86_64", ".x86", ""):
        assert str(tmp_path / f"Ball{suffix}") in str(failure.value)
    assert "sim:NAME" in str(failure.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("3DBall", "sim:3dball"),
        ("simm:3dball", "sim:3dball"),
        ("CartPole-v1", "gym:CartPole-v1"),
        ("cartpole-v2", "gym:CartPole-v1"),
        ("gymnasium:CartPole-v1", "gym:CartPole-v1"),
        ("my_games:Tag-v0", "gym:my_games:Tag-v0"),
        ("lbforaging:Foraging-8x8-2p-3f-v3", "gymma:lbforaging:Foraging-8x8-2p-3f-v3"),
        ("rware-tiny-4ag-v2", "gymma:rware-tiny-4ag-v2"),
        ("gymm:rware-tiny-4ag-v2", "gymma:rware-tiny-4ag-v2"),
        ("simple_spread_v3", "pettingzoo:mpe2.simple_spread_v3"),
        ("builds/3DBall", None),
        ("Walker", None),
    ],
)
def test_a_forgotten_or_misspelt_scheme_gets_a_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, meant: str | None
) -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("mpe2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_games.py").touch()
    with pytest.raises(LaunchError) as failure:
        resolve_program(written, system="Linux")
    assert re.findall(r"did you mean (\S+)\?", str(failure.value)) == ([meant] if meant else [])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Ball.x86_64", "run: chmod 755 "),
        ("ball.py", "begin it with the line '#!/usr/bin/env python3' and run"),
    ],
)
def test_a_non_executable_program_is_reported_with_the_remedy(tmp_path: Path, name: str, hint: str) -> None:
    touch(tmp_path / name, executable=False)
    with pytest.raises(LaunchError, match=f"{name} is not executable; {hint}"):
        resolve_program(str(tmp_path / name), system="Linux")


def test_a_suggested_chmod_reaches_a_shell_as_it_is_meant(tmp_path: Path) -> None:
    player = touch(tmp_path / "My Ball.x86_64", executable=False)
    with pytest.raises(LaunchError, match=re.escape(f"run: chmod 755 '{player}'")):
        resolve_program(str(player), system="Linux")


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


@pytest.mark.parametrize(("worker", "hidden"), [(0, False), (1, True)])
def test_a_monitor_leaves_graphics_to_the_first_simulator(tmp_path: Path, worker: int, hidden: bool) -> None:
    program = touch(tmp_path / "simulate")
    command = resolve_program(str(program), no_graphics_monitor=True, system="Linux")
    line = command.line(worker=worker, port=5005, log=tmp_path / "log")
    assert ("-nographics" in line and "-batchmode" in line) == hidden
