"""The command as it is typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

LINE = re.compile(r"(ok  |warn|fail)  [^:]+: .+")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_healthy_installation_has_a_line_per_look(mlagents_style, free_port: int) -> None:
    said = mlagents_style("doctor", f"--port={free_port}", "--torch-device=cpu")
    assert said.code == 0, said.out
    *lines, last = said.out.splitlines()
    assert re.fullmatch(r"All checks passed(, \d+ with a warning)?\.", last)
    assert all(LINE.fullmatch(line) for line in lines)
    assert any("loopback exchange: 20 messages" in line for line in lines)
    assert not Path("results").exists()


def test_json_is_one_object_and_nothing_else(mlagents_style, free_port: int) -> None:
    said = mlagents_style("doctor", "missing.yaml", "--json", f"--port={free_port}")
    assert said.code == 2
    report = json.loads(said.out)
    assert report["ok"] is False
    (broken,) = [check for check in report["checks"] if check["verdict"] == "fail"]
    assert broken["check"] == "configuration"
    assert "missing.yaml: configuration file not found" in broken["found"]
    assert set(broken) == {"check", "verdict", "found", "remedy"}


def test_the_simulator_of_the_configuration_is_tried_with_its_arguments(
    mlagents_style, workplace: Path, free_port: int
) -> None:
    settings = "{env_path: 'sim:basic', env_args: [--agents, 3]}"
    (workplace / "config.yaml").write_text(f"behaviors: {{Basic: {{}}}}\nenv_settings: {settings}\n")
    said = mlagents_style("doctor", "config.yaml", f"--port={free_port}")
    assert said.code == 0, said.out
    assert "ok    behavior Basic: sees " in said.out
