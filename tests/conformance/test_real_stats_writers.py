"""One plugin of ML-Agents' stats writers in the real mlagents-learn and in ours: it is called alike."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from installed_plugins import STATS_WRITERS, install_example

STEPS, SUMMARY = 4000, 1000
CONFIG = {
    "behaviors": {
        "3DBall": {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 100, "buffer_size": 800},
            "network_settings": {"hidden_units": 16, "num_layers": 1},
            "reward_signals": {"extrinsic": {"gamma": 0.99, "strength": 1.0}},
            "max_steps": STEPS,
            "summary_freq": SUMMARY,
        }
    },
    "environment_parameters": {"gravity": 9.81},
}

Calls = list[dict[str, Any]]


@pytest.fixture
def real_and_ours(
    peer: Any, bundled: Any, finish: Any, free_port: Any, real_learn: str, tmp_path: Path
) -> tuple[Calls, Calls]:
    """What the same plugin was called with by both, with the same command line."""
    code = runpy.run_path(str(STATS_WRITERS / "tests" / "stats_writer_plugin.py"))
    plugin = code["install"](tmp_path / "plugin", recording="make")
    install_example(tmp_path, STATS_WRITERS)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    flags = ["config.yaml", f"--env={bundled('sim:3dball')}", "--run-id=run", "--seed=3", "--num-envs=1"]
    real = tmp_path / "real.jsonl"
    finish(
        peer.start(
            "-c", real_learn, *flags, f"--base-port={free_port()}", "--results-dir=theirs", folder=tmp_path,
            OMP_NUM_THREADS="1", PYTHONPATH=str(plugin), STATS_CALLS=str(real),
        )
    )  # fmt: skip
    ours = tmp_path / "ours.jsonl"
    search = os.pathsep.join([os.environ["PYTHONPATH"], str(plugin), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-m", "trainer_service", "learn", *flags, "--results-dir=ours", "--track=mlagents"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search, "STATS_CALLS": str(ours), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return calls(real), calls(ours)


def calls(path: Path) -> Calls:
    return [json.loads(line) for line in path.read_text().splitlines()]


def named(calls: Calls, name: str) -> Calls:
    return [each for each in calls if each["call"] == name]


def test_a_plugin_is_called_alike_by_both(real_and_ours: tuple[Calls, Calls]) -> None:
    real, ours = real_and_ours
    (made_real,), (made_ours,) = named(real, "make"), named(ours, "make")
    assert (made_real.pop("write_path"), made_ours.pop("write_path")) == ("theirs/run", "ours/run")
    assert made_ours == made_real

    (property_real,), (property_ours,) = named(real, "add_property"), named(ours, "add_property")
    value_real, value_ours = property_real.pop("value"), property_ours.pop("value")
    assert property_ours == property_real
    assert value_real.keys() - value_ours.keys() <= {"init_path"}
    assert value_ours["hyperparameters"].items() >= value_real["hyperparameters"].items()

    written_real, written_ours = named(real, "write_stats"), named(ours, "write_stats")
    assert [each["category"] for each in written_ours] == ["3DBall"] * len(written_ours)
    steps_real, steps_ours = ([each["step"] for each in of] for of in (written_real, written_ours))
    assert steps_ours == list(range(SUMMARY, STEPS + 1, SUMMARY))
    assert steps_real == steps_ours
    for theirs, our in zip(written_real[1:], written_ours[1:], strict=True):  # with an update behind them
        assert our["stats"].keys() >= theirs["stats"].keys()
        kinds = {key: our["stats"][key]["aggregation"] for key in theirs["stats"]}
        assert kinds == {key: each["aggregation"] for key, each in theirs["stats"].items()}

    keys_real = {each["key"] for each in named(real, "on_add_stat")}
    assert keys_real <= {each["key"] for each in named(ours, "on_add_stat")}
