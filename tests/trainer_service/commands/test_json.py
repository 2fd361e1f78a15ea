"""Every command that reports prints one JSON object with ``--json``, and nothing else on standard output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_service.cli import main
from trainer_service.commands.parser import build_parser

MLAGENTS_RUN = Path(__file__).parents[1] / "mlagents_runs" / "hybrid"

WITHOUT = {
    "learn": "a run goes on for hours: status --json tells how it stands, --log-format=json logs in JSON",
    "watch": "a page until it is closed",
    "demo": "a page until it is closed",
    "simulate": "a simulator until its trainer ends",
    "relay": "passes simulators on until it is stopped",
    "serve": "answers calls until it is stopped",
    "suggest": "prints a configuration, in YAML for a file",
    "schema": "prints JSON in any case",
    "alias": "switches something",
}
"""Commands that report nothing, or in another way."""

REPORTS = {
    "check": "basic 3dball",
    "configs": "",
    "evaluate": "one --episodes 1",
    "compare": "one",
    "report": "one",
    "status": "one",
    "play": "sim:basic --episodes 1",
    "record-demo": "sim:basic --policy one --episodes 2 -o recorded.demo",
    "demo-info": "basic.demo",
    "demo-convert": "basic.demo minari:basic/one-v0",
    "clone": "--demo basic.demo --epochs 1 --run-id cloned",
    "sweep": "basic --space space.yaml --env sim:basic --dry-run",
    "export": "one",
    "push": "one --repo user/one --to shared --no-evaluation",
    "import-checkpoint": f"{MLAGENTS_RUN} --run-id imported",
    "doctor": "",
}
"""Arguments that make each command report."""

NEEDS = {"demo-convert": "minari", "sweep": "optuna"}


def commands() -> Mapping[str, argparse.ArgumentParser]:
    (action,) = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return action.choices


PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))["json"]
"""The keys of each report."""

ELSEWHERE = {"load"}
"""Commands that need the Hub: their own tests read their reports."""


def test_every_command_reports_in_json_or_has_a_reason() -> None:
    with_flag = {name for name, each in commands().items() if "--json" in each._option_string_actions}
    assert with_flag == set(REPORTS) | ELSEWHERE
    assert commands().keys() - with_flag == set(WITHOUT)


def shape(report: Any) -> Any:
    """The keys of a report at all depths; of a list those of its first object."""
    if isinstance(report, dict):
        return {key: shape(value) for key, value in report.items()}
    return [shape(report[0])] if isinstance(report, list) and report else None


@pytest.fixture(scope="module")
def folder(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short run ``one``, a recording of it and a space of parameters."""
    place = tmp_path_factory.mktemp("json")
    settings: dict[str, Any] = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 32, "buffer_size": 128},
        "network_settings": {"hidden_units": 8, "num_layers": 1},
        "max_steps": 300,
        "summary_freq": 100,
    }
    (place / "own.yaml").write_text(yaml.safe_dump({"behaviors": {"Basic": settings}}))
    space = {"behaviors.Basic.hyperparameters.batch_size": {"choices": [16, 32]}}
    (place / "space.yaml").write_text(yaml.safe_dump(space))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(["learn", "own.yaml", "--env=sim:basic", "--run-id=one", "--seed=1", "-q"]) == 0
        assert (
            main(["record-demo", "sim:basic", "--policy", "one", "--episodes", "2", "-o", "basic.demo"]) == 0
        )
    return place


@pytest.mark.parametrize("command", REPORTS)
def test_the_report_is_one_object_on_standard_output(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if command in NEEDS:
        pytest.importorskip(NEEDS[command])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
    assert main([command, "--json", *REPORTS[command].split()]) == 0
    assert shape(json.loads(capfd.readouterr().out)) == PUBLISHED[command]


@pytest.mark.parametrize(
    "arguments",
    ["evaluate {} --episodes 1", "evaluate {}@last --episodes 1", "compare {}", "report {}", "status {}", "export {}",
     "push {} --repo user/one --to again --no-evaluation", "play sim:basic --policy {} --episodes 1",
     "record-demo sim:basic --policy {} --episodes 1 -o again.demo"],
)  # fmt: skip
def test_the_folder_of_a_run_stands_for_its_id(
    arguments: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main([*arguments.format("results/one").split(), "--json"]) == 0


@pytest.mark.parametrize(
    "arguments",
    ["evaluate missing", "status missing", "compare missing", "report missing", "export missing", "configs missing",
     "play sim:missing", "demo-info missing.demo", "clone --demo missing.demo", "import-checkpoint missing --run-id x"],
)  # fmt: skip
def test_an_error_leaves_standard_output_empty(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments.split(), "--json"]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert "missing" in said.err


def test_mistakes_in_a_file_are_part_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("behaviors: {Walker: {trainer_type: ppo, max_step: 5}}")
    assert main(["check", "bad.yaml", "basic", "--json"]) == 2
    said = capfd.readouterr()
    report = json.loads(said.out)
    assert said.err == ""
    assert not report["ok"]
    bad, basic = report["files"]
    assert (bad["file"], bad["ok"], basic["ok"]) == ("bad.yaml", False, True)
    assert "max_step" in bad["errors"][0]
