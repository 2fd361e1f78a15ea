"""The real ML-Agents 1.1.0 loads recordings of ours, and what it writes is read here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from trainer_service.cli import main
from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationFile, DemonstrationWriter
from unity_bridge.simulators.registry import SCENES
from unity_bridge.specs import PICTURE, ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import as_floats, join_observations

PROGRAM = Path(__file__).parents[1] / "programs" / "demo_loader.py"

Loaded = dict[str, Any]


@pytest.fixture
def load(peer: Any, finish: Any, tmp_path: Path) -> Callable[[Path], Loaded]:
    """The arrays that the real loader makes of a file."""

    def read(path: Path) -> Loaded:
        finish(peer.start(PROGRAM, "read", path, tmp_path / "loaded.npz", folder=tmp_path))
        with np.load(tmp_path / "loaded.npz") as loaded:
            return dict(loaded)

    return read


def require_same(loaded: Loaded, segments: list[DemonstratedSegment], spec: BehaviorSpec) -> None:
    """Asserts that its rows are ours, each with the action of the row before (its loader knows nothing of that).

    Between every two episodes it has one more, which it makes of an end and a beginning.
    """
    described = json.loads(str(loaded["spec"]))
    assert described == {
        "continuous": spec.action_spec.continuous_size,
        "branches": list(spec.action_spec.discrete_branches),
        "sensors": [[sensor.name, list(sensor.shape)] for sensor in spec.observation_specs],
    }
    ends = np.cumsum([len(segment) + 1 for segment in segments])
    rows = np.setdiff1d(np.arange(ends[-1]), ends - 1)  # without the final states
    answers = rows + 1
    answers = answers[answers < len(loaded["reward"])]  # and it drops the last row of all
    for sensor in range(len(spec.observation_specs)):
        seen = as_floats(join_observations([segment.observations[sensor] for segment in segments]))
        np.testing.assert_allclose(loaded[f"observation_{sensor}"][rows], seen, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(
        loaded["reward"][rows], np.concatenate([segment.rewards for segment in segments])
    )
    lasts = np.cumsum([len(segment) for segment in segments]) - 1
    assert np.flatnonzero(loaded["done"][rows]).tolist() == lasts.tolist()
    for kind in ("continuous", "discrete"):
        ours = np.concatenate([getattr(segment, f"{kind}_actions") for segment in segments])
        if ours.shape[1]:
            np.testing.assert_array_equal(loaded[kind][answers], ours[: len(answers)])


@pytest.mark.parametrize("name", SCENES)
def test_real_loader_reads_recordings_of_our_experts(
    name: str, load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    behavior = ["--behavior", "BigWallJump"] if name == "walljump" else []
    line = ["record-demo", f"sim:{name}", "--policy", "heuristic", "-o", "x.demo", "--episodes", "4"]
    assert main([*line, *behavior, "--env-args", "--agents", "3"]) == 0
    file = DemonstrationFile(tmp_path / "x.demo")
    require_same(load(file.path), list(file.segments(10**6)), file.spec)


def test_real_loader_reads_hybrid_actions_and_plain_pictures(load: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    spec = BehaviorSpec(
        (ObservationSpec("number", (3,)), ObservationSpec("eye", (2, 5, 4), PICTURE)), ActionSpec(2, (3, 2))
    )

    def segment(steps: int) -> DemonstratedSegment:
        def seen(rows: int) -> Any:
            return tuple(
                rng.random((rows, *sensor.shape)).astype(np.float32) for sensor in spec.observation_specs
            )

        return DemonstratedSegment(
            observations=seen(steps),
            continuous_actions=rng.random((steps, 2)).astype(np.float32),
            discrete_actions=rng.integers(0, [3, 2], (steps, 2)),
            rewards=rng.random(steps).astype(np.float32),
            group_rewards=np.zeros(steps, np.float32),
            final_observations=seen(1),
            terminated=True,
            truncated=False,
            starts_episode=True,
        )

    segments = [segment(5), segment(1), segment(9)]
    with DemonstrationWriter(tmp_path / "x.demo", "Rich", spec, name="rich") as writer:
        for each in segments:
            writer.write(each)
    require_same(load(tmp_path / "x.demo"), segments, spec)


def test_recordings_of_the_real_writer_are_read(peer: Any, finish: Any, tmp_path: Path) -> None:
    finish(peer.start(PROGRAM, "write", "real.demo", folder=tmp_path))
    file = DemonstrationFile(tmp_path / "real.demo")
    assert (file.behavior_name, file.is_shifted, file.meta.number_steps) == ("Recorded", True, 0)
    assert [sensor.shape for sensor in file.spec.observation_specs] == [(2,), (3, 5, 4)]
    assert file.spec.action_spec == ActionSpec(2, (4,))
    segments = list(file.segments())
    assert [len(segment) for segment in segments] == [5, 5, 5]
    for episode, segment in enumerate(segments):
        steps = np.arange(1, 6)
        assert segment.observations[0].tolist() == [[episode, step] for step in range(5)]
        assert segment.observations[1].dtype == np.uint8
        assert segment.observations[1][:, 0, 0, 0].tolist() == [10 * episode + step for step in range(5)]
        np.testing.assert_array_equal(segment.continuous_actions[:, 0], steps / 4)
        np.testing.assert_array_equal(segment.discrete_actions[:, 0], (episode + steps) % 4)
        np.testing.assert_array_equal(segment.rewards, steps / 8)


def test_real_learner_imitates_a_recording_of_ours(
    peer: Any, bundled: Any, finish: Any, free_port: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["record-demo", "sim:basic", "--policy", "heuristic", "-o", "x.demo", "--episodes", "20"]
    assert main(line) == 0
    demonstrations = {"demo_path": "x.demo", "strength": 0.5}
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 32, "buffer_size": 128},
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "reward_signals": {"extrinsic": {"strength": 0.1}, "gail": demonstrations},
        "behavioral_cloning": demonstrations,
        "max_steps": 600,
        "summary_freq": 200,
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"behaviors": {"Basic": settings}}))
    start = "from mlagents.trainers.learn import main; main()"
    flags = [f"--env={bundled('sim:basic')}", "--run-id=run", f"--base-port={free_port()}", "--seed=3"]
    output = finish(peer.start("-c", start, "config.yaml", *flags, folder=tmp_path, OMP_NUM_THREADS="1"))
    assert "Basic. Step: 600" in output or "Basic. Step: 400" in output
    assert (tmp_path / "results" / "run" / "Basic" / "checkpoint.pt").exists()
