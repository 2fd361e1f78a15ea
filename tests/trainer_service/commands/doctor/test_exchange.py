from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pursuit_groups import SPECS

from trainer_service.commands.doctor.exchange import (
    _behaviors,
    bundled_simulator,
    configuration,
    environment,
)
from trainer_service.commands.doctor.report import Finding
from trainer_service.config import RunOptions

pytestmark = pytest.mark.process

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="starts shell scripts")


def options(**behaviors: dict[str, object]) -> RunOptions:
    return RunOptions.model_validate({"behaviors": behaviors})


def by_subject(findings: object) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def test_the_bundled_simulator_really_converses() -> None:
    finding = bundled_simulator()
    assert finding.verdict == "ok", finding
    assert "20 messages" in finding.found
    assert "Basic?team=0" in finding.found


def test_a_simulator_and_a_configuration_that_fit() -> None:
    found = by_subject(environment("sim:hybrid", options(Hybrid={})))
    assert {finding.verdict for finding in found.values()} == {"ok"}
    assert "1 continuous actions, branches " in found["behavior Hybrid"].found


def test_a_behavior_under_another_name_is_told_from_both_sides() -> None:
    found = by_subject(environment("sim:basic", options(Basik={})))
    assert found["behavior Basic"].verdict == "fail"
    assert "is 'Basik' meant?" in found["behavior Basic"].found
    assert found["behavior Basik"].verdict == "warn"


@posix_only
def test_a_program_that_fails_is_quoted(actor) -> None:
    program = actor("print=the_ball_is_lost", "exit=3")
    (finding,) = environment(str(program), RunOptions())
    assert finding.verdict == "fail"
    assert "exited with code 3" in finding.found
    assert "the ball is lost" in finding.found


def test_a_configuration_is_judged_as_check_does(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("behaviors: {A: {max_stepz: 5}}")
    (wrong,) = configuration(path)
    assert wrong.verdict == "fail"
    assert "did you mean 'max_steps'?" in wrong.found
    path.write_text("behaviors: {A: {framework: pytorch}}")
    verdicts = [finding.verdict for finding in configuration(path)]
    assert verdicts == ["warn"]
    path.write_text("behaviors: {A: {}}")
    (right,) = configuration(path)
    assert right.verdict == "ok"


def test_a_team_is_judged_as_one_behavior() -> None:
    declared = {f"{name}?team=0": spec for name, spec in SPECS.items()}
    settings = {"trainer_type": "mappo", "hyperparameters": {"share": "none"}}

    def found(*members: str) -> dict[str, Finding]:
        teams = {"Pursuit": list(members)}
        configured = RunOptions.model_validate({"behaviors": {"Pursuit": settings}, "teams": teams})
        return by_subject(_behaviors(declared, configured))

    fitting = found("Leader", "Runner")
    assert list(fitting) == ["behavior Pursuit"]
    assert fitting["behavior Pursuit"].verdict == "ok"
    missing = found("Leader", "Walker")
    assert missing["teams"].verdict == "fail"
    assert "without 'Walker'" in missing["teams"].found
