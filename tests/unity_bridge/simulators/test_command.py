from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from unity_bridge.side_channels import (
    parse_notice,
    unpack_records,
)
from unity_bridge.simulators.__main__ import main
from unity_bridge.simulators.command import parse

BASIC = "Basic?team=0"


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start_(*arguments: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "unity_bridge.simulators", *arguments]
        processes.append(subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start_
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.process
def test_a_process_plays_until_the_trainer_has_enough(trainer, serve, start) -> None:
    trainer.handshake(seed=3).then(*[trainer.act(BASIC, discrete=[[2], [1]])] * 4)
    with serve(trainer.exchange) as port:
        process = start("sim:basic", "--mlagents-port", str(port), "--agents", "2")
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "sim:basic: the trainer ended the conversation\n")
    assert len(trainer.received) == 7


def test_a_refused_introduction_is_no_success(trainer, serve, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(trainer.exchange) as port:  # it answers everything with status 400
        assert main(["sim:basic", "--mlagents-port", str(port)]) == 1
    assert capsys.readouterr().err == "error: sim:basic: the trainer refused the introduction\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")
@pytest.mark.process
def test_sigterm_says_goodbye_while_the_trainer_computes(trainer, serve, start) -> None:
    thinking, left = threading.Event(), threading.Event()

    def exchange(data: bytes, context: object) -> bytes:
        if len(trainer.received) == 2:
            trainer.exchange(data)
            thinking.set()
            left.wait(20)
        return trainer.exchange(data)

    trainer.handshake()
    with serve(exchange) as port:
        process = start("sim:basic", "--mlagents-port", str(port))
        assert thinking.wait(20)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        statuses = [message.header.status for message in trainer.received]
        left.set()
    assert (process.returncode, err) == (0, "sim:basic: it was told to stop\n")
    assert statuses == [200, 200, 200, 400]


def test_a_recording_is_written_at_the_end(trainer, serve, tmp_path: Path, capsys) -> None:
    trainer.handshake().then(*[trainer.act(BASIC, discrete=[[2]])] * 4)
    path = tmp_path / "basic.gif"
    with serve(trainer.exchange) as port:
        assert main(["sim:basic", "--mlagents-port", str(port), "--record", str(path)]) == 0
    with Image.open(path) as picture:
        assert picture.n_frames == 5
    assert f"{path}: 5 frames" in capsys.readouterr().err


def test_without_a_trainer_the_exit_code_is_1(capsys) -> None:
    assert main(["sim:basic", "--mlagents-port", "1", "--connect-timeout", "0.1"]) == 1
    assert capsys.readouterr().err == (
        "error: sim:basic: no trainer answers on 127.0.0.1:1 (waited 0.1 s). "
        "Start mlagents-style learn CONFIG --port 1, or wait longer with --connect-timeout 60\n"
    )


def test_warnings_of_the_simulator_go_to_the_trainer_and_to_standard_error(trainer, serve, capsys) -> None:
    kwargs = '{"says": "go left"}'
    with serve(trainer.handshake().exchange) as port:
        main(["gym:gym_lab:Talker", "--mlagents-port", str(port), "--env-kwargs", kwargs])
    warning = (
        "gym:gym_lab:Talker: observation 'mission': a text, which no network reads; left out of observations"
    )
    assert capsys.readouterr().err.startswith(f"{warning}\n")
    [record] = unpack_records(trainer.received[2].unity_output.rl_output.side_channel)
    assert parse_notice(record.body).text == warning


def test_arguments_of_unity_players_are_ignored() -> None:
    line = "sim:basic -nographics -batchmode --mlagents-port 5005 -logFile player.log -screen-width 84 --agents 3"
    arguments = parse(line.split())
    assert (arguments.env, arguments.mlagents_port, arguments.agents) == ("sim:basic", 5005, 3)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sim:basic --port 5005", "unknown argument --port (did you mean --mlagents-port?)"),
        ("--seed 3", "the following arguments are required: ENV: sim:NAME (a bundled scene), gym:ID"),
        ("sim:basic --agent 3", "unknown argument --agent (did you mean --agents?)"),
        ("sim:basic --sede=3", "unknown argument --sede=3 (did you mean --seed?)"),
        ("sim:basic 5004", "unknown argument 5004"),
        ("sim:sorter --parameter num_tiles", "expected NAME=VALUE with a number, got 'num_tiles'"),
        ("sim:sorter --parameter num_tiles=many", "expected NAME=VALUE with a number, got 'num_tiles=many'"),
        ("sim:sorter --parameter num_tiles=nan", "expected NAME=VALUE with a number, got 'num_tiles=nan'"),
        ("sim:sorter --parameter =3", "expected NAME=VALUE with a number, got '=3'"),
        ("sim:gridworld --pictures jpeg", "invalid choice: 'jpeg'"),
        ("sim:basic --agents 0", "--agents: expected a number from 1 on, got 0"),
        ("sim:basic --seed -1", "--seed: expected a number from 0 on, got -1"),
        ("sim:basic --mlagents-port 70000", "expected a port from 1 to 65535, got 70000"),
        ("sim:basic --connect-timeout inf", "expected a number from 0 on, got inf"),
        ("gym:CartPole-v1 --env-kwargs [1]", "expected a JSON object, got '[1]'"),
        ("gym:CartPole-v1 --env-kwargs {a", "expected a JSON object, got '{a'"),
        ("pettingzoo:m --behaviors a=b,c", "expected AGENTS=NAME,..., got 'a=b,c'"),
        ("pettingzoo:m --behaviors =b", "expected AGENTS=NAME,..., got '=b'"),
        ("pettingzoo:m --copies 0", "expected a number from 1 on, got 0"),
        ("sim:basic --record no/such/folder/x.gif", "there is no folder"),
        ("--agents 3", "the following arguments are required: ENV"),
    ],
)
def test_a_wrong_argument_is_named(line: str, complaint: str, capsys) -> None:
    assert main(line.split()) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sim:basic --pictures png", "sim:basic: --pictures is for scenes with a camera only: sim:gridworld"),
        ("gym:CartPole-v1 --pictures png", "gym:CartPole-v1: --pictures is for bundled scenes with a camera"),
        (
            "sim:sorter --parameter NUM_TILE=3",
            "sim:sorter: no environment parameter 'NUM_TILE'; expected one of num_tiles (did you mean 'num_tiles'?)",
        ),
        ("sim:basic --parameter x=3", "sim:basic: no environment parameter 'x'; it has none"),
        ("gym:CartPole-v1 --parameter x=3", "gym:CartPole-v1: no environment parameter 'x'; it has none"),
        ("sim:spread --agents 4", "sim:spread: --agents is for scenes without teams; expected --copies, "),
        ("sim:spread --clock", "sim:spread: it has no --clock; expected --copies, --agents-per-copy, "),
        ("sim:pushblock --agents-per-copy 2", "sim:pushblock: --agents-per-copy: expected 3 agents or more"),
        ("sim:basic --copies 3", "sim:basic: --copies is for scenes with teams only: sim:spread, sim:duel"),
        ("gym:CartPole-v1 --steps 9", "gym:CartPole-v1: it has no --steps; expected --wrap, --vector"),
    ],
)
def test_what_a_scene_has_no_use_for_is_refused(line: str, complaint: str, capsys) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: {complaint}")


@pytest.mark.process
def test_a_simulator_starts_without_torch_pictures_and_gymnasium() -> None:
    code = (
        "import sys, unity_bridge.simulators.__main__\n"
        "print([name for name in ('torch', 'PIL', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"
