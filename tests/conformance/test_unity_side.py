"""A client made of the real ML-Agents' messages, as strict as Unity's C# code, in front of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from unity_bridge.side_channels import ENGINE_CONFIGURATION, ENVIRONMENT_PARAMETERS

HERE = Path(__file__).parent
STUB = HERE / "unity_stub.py"
PACKAGES = ["1.0.8", "2.0.1", "3.0.0"]
BEHAVIORS = {"1.0.8": ["Old"], "2.0.1": ["Hybrid"], "3.0.0": ["Visual", "Team"]}
SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 16, "buffer_size": 64},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "max_steps": 150,
    "time_horizon": 8,
    "summary_freq": 50,
}


@pytest.fixture
def stub(build: Callable[..., Path], peer: Any) -> Callable[..., Path]:
    """The stub with these arguments, as an executable."""
    return lambda *words: build(peer.python, STUB, *words)


@pytest.fixture
def start_learning(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a short run of ours for the behaviors of a package."""

    def start(package: str, *flags: object, **sections: Any) -> subprocess.Popen[str]:
        behaviors = dict.fromkeys(BEHAVIORS[package], SETTINGS)
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"behaviors": behaviors, **sections}))
        words = ["learn", "config.yaml", "--run-id=run", "--seed=5", "--timeout-wait=60", *map(str, flags)]
        return subprocess.Popen(
            [sys.executable, "-m", "trainer_service", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return start


def report_of(output: str) -> dict[str, Any]:
    """The stub's report about the trainer, its last line."""
    report: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return report


@pytest.mark.parametrize("package", PACKAGES)
def test_observations_of_each_package_arrive_unchanged(
    package: str, stub: Any, our_record: Any, tmp_path: Path
) -> None:
    truth_file = tmp_path / "truth.npz"
    setting = {"file_name": str(stub(package, "--truth", truth_file)), "seed": 1, "timeout_wait": 60}
    plan = {"steps": 30, "reset_at": 11, "actions_seed": 3, "environment": setting}
    record = our_record(plan)
    with np.load(truth_file) as truth:
        assert len(truth.files) > 60
        for path in truth.files:
            step, name, sensor = path.split("/")
            if sensor == "done":
                continue
            done = truth[f"{step}/{name}/done"]
            for kind, rows in (("decision", ~done), ("terminal", done)):
                seen = record[f"{step}/{name}/{kind}/obs{sensor}"]
                np.testing.assert_allclose(seen, truth[path][rows], atol=1e-6, err_msg=f"{path} {kind}")


@pytest.mark.parametrize("package", PACKAGES)
def test_builds_of_each_package_accept_our_replies(
    package: str, stub: Any, start_learning: Any, finish: Any, tmp_path: Path
) -> None:
    run = start_learning(
        package,
        f"--env={stub(package)}",
        "--num-areas=3",
        "--time-scale=7",
        engine_settings={"width": 123},
        environment_parameters={"wind": 1.5},
    )
    output = finish(run)
    report = report_of((tmp_path / "results" / "run" / "run_logs" / "Player-0.out").read_text())
    assert (report["seed"], report["areas"], report["resets"]) == (5, 3, 1)
    assert report["steps"] > 30
    assert report["forbidden"] == 0
    engine = [bytes.fromhex(body) for body in report["channels"][str(ENGINE_CONFIGURATION)]]
    assert [body[0] for body in engine] == [0, 1, 2, 3, 4]
    assert engine[2] == bytes.fromhex("02000000 0000e040")  # the time scale, 7.0
    assert report["channels"][str(ENVIRONMENT_PARAMETERS)] == [b"\x04\0\0\0wind\0\0\0\0\0\0\xc0\x3f".hex()]
    assert output.count("0f5c1d3a-9a53-4a0b-8f55-2e0b7f3c9d11") == 1  # nobody knows the channel: said once
    for name in BEHAVIORS[package]:
        assert (tmp_path / "results" / "run" / f"{name}.onnx").is_file()


def test_editor_may_stop_and_play_during_a_run(
    peer: Any, start_learning: Any, finish: Any, free_port: Any, tmp_path: Path
) -> None:
    port = free_port()
    run = start_learning("2.0.1", f"--port={port}")
    plays = ["2.0.1", "--leave-after", 20, "--mlagents-port", port]
    first = peer.start(STUB, *plays, folder=tmp_path)
    assert report_of(finish(first))["steps"] == 20
    second = peer.start(STUB, "2.0.1", "--mlagents-port", port, folder=tmp_path)
    assert report_of(finish(second))["steps"] > 20
    assert "stopped by itself (status 400)" in finish(run)
