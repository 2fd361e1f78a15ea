"""``mlagents-style simulate``: help without an environment, and flags in any place."""

from __future__ import annotations

import pytest

from trainer_service.cli import main


@pytest.mark.parametrize("line", ["simulate --help", "simulate sim:basic --help", "simulate --seed 3 -h"])
def test_help_needs_no_environment_and_names_the_forms_of_one(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "usage: mlagents-style simulate" in said
    for form in ("sim:NAME", "gym:ID", "gymma:ID", "pettingzoo:MODULE", "FILE.py:NAME", "--mlagents-port"):
        assert form in said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("simulate --port 5005 sim:basic", "unknown argument --port (did you mean --mlagents-port?)"),
        ("simulate sim:basic --port=5005", "unknown argument --port=5005 (did you mean --mlagents-port?)"),
        ("simulate", "the following arguments are required: ENV: sim:NAME (a bundled scene), gym:ID"),
        ("simulate --seed 3 sim:nothing", "sim:nothing: no such scene"),
    ],
)
def test_a_mistake_is_named(line: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert expected in capsys.readouterr().err
