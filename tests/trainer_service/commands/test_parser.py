"""Every flag of mlagents-learn 1.1.0, however much of it is typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainer_service.cli import main
from trainer_service.commands.parser import GROUPS, build_parser

FLAGS = {
    "--env": ["builds/Walker"],
    "--resume": [],
    "--deterministic": [],
    "--force": [],
    "--run-id": ["walker"],
    "--initialize-from": ["other"],
    "--seed": ["7"],
    "--inference": [],
    "--base-port": ["6000"],
    "--num-envs": ["2"],
    "--num-areas": ["3"],
    "--debug": [],
    "--env-args": ["--level", "3"],
    "--max-lifetime-restarts": ["-1"],
    "--restarts-rate-limit-n": ["2"],
    "--restarts-rate-limit-period-s": ["30"],
    "--torch": [],
    "--tensorflow": [],
    "--results-dir": ["elsewhere"],
    "--timeout-wait": ["10"],
    "--width": ["84"],
    "--height": ["84"],
    "--quality-level": ["1"],
    "--time-scale": ["1"],
    "--target-frame-rate": ["-1"],
    "--capture-frame-rate": ["30"],
    "--no-graphics": [],
    "--no-graphics-monitor": [],
    "--torch-device": ["cpu"],
    "--load": [],
    "--train": [],
}
"""With something that may follow each."""


def parse(*arguments: str) -> dict[str, object]:
    parsed, unknown = build_parser().parse_known_args(["learn", *arguments])
    assert not unknown
    return {key: value for key, value in vars(parsed).items() if key != "parser"}


def unambiguous(flag: str) -> list[str]:
    """Every beginning of ``flag`` that mlagents-learn takes for it."""
    others = [other for other in ("--help", *FLAGS) if other != flag]
    beginnings = (flag[:length] for length in range(3, len(flag)))
    return [each for each in beginnings if not any(other.startswith(each) for other in others)]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_and_its_beginnings_mean_the_same(flag: str) -> None:
    nothing, whole = parse(), parse(flag, *FLAGS[flag])
    assert len(whole) == len(nothing) + 1, "one flag sets one thing"
    for beginning in unambiguous(flag):
        assert parse(beginning, *FLAGS[flag]) == whole


@pytest.mark.parametrize("which", ["5000", "best", "latest"])
def test_resume_takes_a_checkpoint_and_never_the_file_that_follows(which: str) -> None:
    assert parse("--resume", which, "config.yaml") == parse("config.yaml", f"--resume={which}")
    for line in (["--resume", "config.yaml"], ["config.yaml", "--resume"]):
        parsed = parse(*line)
        assert str(parsed["trainer_config_path"]) == "config.yaml"
        assert parsed["resume"] == "true"
    assert parse("--env-args", "--resume", which)["env_args"] == ["--resume", which]


def test_flags_that_are_absent_leave_no_trace() -> None:
    assert parse() == {"command": "learn", "trainer_config_path": None}


def test_everything_after_env_args_is_the_simulators() -> None:
    parsed = parse("config.yaml", "--run-id=a", "--env-args", "--run-id=b", "--num-envs", "3", "extra")
    assert parsed["run_id"] == "a"
    assert "num_envs" not in parsed
    assert parsed["env_args"] == ["--run-id=b", "--num-envs", "3", "extra"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Types words that must be refused; returns what is said of them."""

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as leaving:
            main(words)
        assert leaving.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("learn --run_id=x", "--run-id"),
        ("learn --no-grafics", "--no-graphics"),
        ("learn --mlagents-port=5004", "--port"),
        ("train config.yaml", "learn"),
        ("lern config.yaml", "learn"),
        ("mlagents-push-to-hf config.yaml", "push"),
        ("eval config.yaml", "evaluate"),
    ],
)
def test_a_word_that_is_none_has_its_nearest(refused: Callable[..., str], typed: str, meant: str) -> None:
    assert refused(*typed.split()).endswith(f"(did you mean '{meant}'?)\n")


def test_a_slip_in_a_flag_costs_one_line_of_usage(refused: Callable[..., str]) -> None:
    usage, error = refused("learn", "--num-evns=2").splitlines()
    assert usage.startswith("usage: mlagents-style learn ")
    assert error.startswith("mlagents-style learn: error: unrecognized arguments: --num-evns=2")


def test_the_program_alone_lists_its_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for title, group in GROUPS.items():
        assert f"\n{title}:\n" in said
        for name, (_, purpose) in group.items():
            assert f"  {name:<18} {purpose}\n" in said
    examples = [line.split()[1:] for line in said.splitlines() if line.startswith("  mlagents-style ")]
    assert len(examples) == 3
    for words in examples:
        build_parser().parse_args(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learn", "--seed="], "argument --seed: expected a whole number, got nothing"),
        (["learn", "--num-envs", "two"], "argument --num-envs: expected a whole number, got 'two'"),
        (["learn", "--time-scale=fast"], "argument --time-scale: expected a number, got 'fast'"),
        (["evaluate", "w", "--episodes="], "argument --episodes: expected a whole number, got nothing"),
    ],
)
def test_a_flag_that_takes_a_number_says_what_came(
    refused: Callable[..., str], words: list[str], message: str
) -> None:
    assert refused(*words).endswith(f"error: {message}\n")


def test_help_can_be_piped_on_windows(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["learn"], ["check"], ["evaluate"], ["export"], ["import-checkpoint"], ["doctor"]):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        capsys.readouterr().out.encode("cp1252")
