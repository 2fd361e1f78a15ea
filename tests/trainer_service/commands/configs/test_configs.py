"""The command that lists and copies ready configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer_service.cli import main
from trainer_service.config import bundled_configs, load_run_options


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the command in an empty folder; its exit code."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: main(["configs", *arguments])


def test_all_are_listed_with_task_and_env(
    configs: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert configs() == 0
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(bundled_configs())
    (line,) = [line for line in lines if line.startswith("cartpole ")]
    assert line.split(maxsplit=2)[1:] == [
        "gym:CartPole-v1",
        "Gymnasium's cart that keeps a pole upright, eight copies in one simulator",
    ]


def test_copies_are_the_same_configuration(configs: Callable[..., int], tmp_path: Path) -> None:
    assert configs("basic", "3dball.yaml", "--to", "deep/folder") == 0
    for name in ("basic", "3dball"):
        copied = load_run_options(tmp_path / "deep" / "folder" / f"{name}.yaml")
        assert copied.options == load_run_options(name).options


def test_the_suggested_command_quotes_the_copys_path(
    configs: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert configs("basic", "--to", "my folder") == 0
    assert "mlagents-style learn 'my folder/basic.yaml' --run-id=basic" in capsys.readouterr().out
    assert "mlagents-style learn 'my folder/basic.yaml'" in Path("my folder/basic.yaml").read_text()


def test_nothing_is_overwritten_unless_told(
    configs: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "basic.yaml").write_text("mine")
    assert configs("3dball", "basic") == 2
    assert "basic.yaml exists already; --force overwrites" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["basic.yaml"], "none is copied then"
    assert (tmp_path / "basic.yaml").read_text() == "mine"
    assert configs("basic", "--force") == 0
    assert "behaviors:" in (tmp_path / "basic.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["BASIK"], "'BASIK' is no bundled configuration; did you mean 'basic'?"),
        (["xyz"], "'xyz' is no bundled configuration; mlagents-style configs lists them"),
        (["--to", "there"], "expected the names of configurations to copy, got none"),
        (["basic", "--to", "taken"], "basic.yaml: cannot be written: "),
    ],
)
def test_bad_requests_are_told(
    configs: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert configs(*arguments) == 2
    assert message in capsys.readouterr().err
