"""``mlagents-style demo-convert``: data sets of Minari as recordings, and the reverse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trainer_service.running.interop.minari_datasets import _segment
from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationFile
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import PICTURE, ActionSpec, BehaviorSpec, ObservationSpec

VECTOR = ObservationSpec("vector", (2,))
BYTES = ObservationSpec("camera", (3, 20, 24), PICTURE)


@pytest.fixture
def minari(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, with an empty folder of data sets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(workplace / "minari"))
    pytest.importorskip("h5py", reason="the extra [minari] is not installed")
    return pytest.importorskip("minari", reason="the extra [minari] is not installed")


def segments(path: str) -> list[DemonstratedSegment]:
    return list(DemonstrationFile(Path(path)).segments(10**6))


def stacked(samples: list[Any]) -> Any:
    """Samples of a space side by side, as Minari has them."""
    if isinstance(samples[0], dict):
        return {key: stacked([each[key] for each in samples]) for key in samples[0]}
    return np.array(samples)


def make_dataset(
    minari: Any, name: str, observation_space: Any, action_space: Any, **others: Any
) -> list[Any]:
    """A data set of three episodes, of 4, 5 and 6 steps. Returns them."""
    from minari.data_collector import EpisodeBuffer

    observation_space.seed(1)
    action_space.seed(1)
    episodes = []
    for number in range(3):
        steps = 4 + number
        last = [step == steps - 1 for step in range(steps)]
        episodes.append(
            EpisodeBuffer(
                id=number,
                observations=stacked([observation_space.sample() for _ in range(steps + 1)]),
                actions=np.array([action_space.sample() for _ in range(steps)]),
                rewards=np.linspace(0.0, 1.0, steps).tolist(),
                terminations=last if number else [False] * steps,
                truncations=[False] * steps if number else last,
                infos={},
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            name, episodes, observation_space=observation_space, action_space=action_space, **others
        )
    return episodes


def test_a_dataset_becomes_a_recording_of_its_environment(mlagents_style, minari: Any) -> None:
    import gymnasium

    env = gymnasium.make("Pendulum-v1")
    episodes = make_dataset(minari, "swing/up-v0", env.observation_space, env.action_space, env="Pendulum-v1")
    said = mlagents_style("demo-convert", "minari:swing/up-v0", "swing.demo")
    assert said.code == 0, said.err
    assert said.out == "Converted 3 episodes of Pendulum-v1: 15 steps, in swing.demo\n"
    file = DemonstrationFile(Path("swing.demo"))
    assert file.behavior_name == "Pendulum-v1"
    assert file.spec.action_spec == ActionSpec(1)
    for episode, segment in zip(episodes, segments("swing.demo"), strict=True):
        steps = len(segment)
        assert segment.observations[0] == pytest.approx(episode.observations[:steps])
        assert segment.final_observations[0] == pytest.approx(episode.observations[steps:])
        # Torques from -2 to 2, as actions from -1 to 1.
        assert segment.continuous_actions == pytest.approx(episode.actions / 2, abs=1e-6)
        assert segment.rewards == pytest.approx(np.array(episode.rewards))
    ends = [(each.terminated, each.truncated) for each in segments("swing.demo")]
    assert ends == [(False, True), (True, False), (True, False)]


@pytest.mark.parametrize(
    ("sensors", "actions"), [((VECTOR,), ActionSpec(0, (3,))), ((BYTES, VECTOR), ActionSpec(2, (3,)))]
)
def test_recordings_come_back_from_a_dataset(
    mlagents_style, minari: Any, write_demo, shown, sensors: tuple[ObservationSpec, ...], actions: ActionSpec
) -> None:
    rng = np.random.default_rng(1)
    episodes = []
    for steps in (3, 5):
        seen = [
            rng.integers(0, 256, (steps + 1, *sensor.shape)).astype(np.uint8)
            if sensor.is_picture
            else rng.normal(size=(steps + 1, *sensor.shape)).astype(np.float32)
            for sensor in sensors
        ]
        discrete = np.stack(
            [rng.integers(0, size, steps) for size in actions.discrete_branches or (1,)], axis=1
        )
        continuous = rng.uniform(-1, 1, (steps, actions.continuous_size))
        episodes.append(shown(seen, continuous, discrete if actions.discrete_size else None))
    write_demo(BehaviorSpec(sensors, actions), *episodes)
    said = mlagents_style("demo-convert", "expert.demo", "minari:mine/shown-v0")
    assert said.code == 0, said.err
    said = mlagents_style("demo-convert", "minari:mine/shown-v0", "back.demo")
    assert said.code == 0, said.err
    file = DemonstrationFile(Path("back.demo"))
    assert file.behavior_name == "shown"
    assert file.spec.action_spec == actions
    assert [each.shape for each in file.spec.observation_specs] == [each.shape for each in sensors]
    for before, after in zip(segments("expert.demo"), segments("back.demo"), strict=True):
        for ours, theirs in zip(
            before.observations + before.final_observations,
            after.observations + after.final_observations,
            strict=True,
        ):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        assert after.continuous_actions == pytest.approx(before.continuous_actions, abs=1e-6)
        np.testing.assert_array_equal(after.discrete_actions, before.discrete_actions)
        assert (after.terminated, after.truncated) == (before.terminated, before.truncated)


def test_what_cannot_be_converted_is_named(mlagents_style, minari: Any, write_demo, shown) -> None:
    from gymnasium import spaces

    write_demo(
        BehaviorSpec((VECTOR,), ActionSpec(1)), shown([np.zeros((3, 2), np.float32)], np.zeros((2, 1)))
    )
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers("none-v0", [], observation_space=box, action_space=box)
    assert mlagents_style("demo-convert", "expert.demo", "minari:taken-v0").code == 0
    for line, words in {
        "minari:nowhere-v0 x.demo": "no such data set on this machine; 'minari download nowhere-v0'",
        "minari:none-v0 x.demo": "'minari:none-v0': expected episodes, found none",
        "minari:taken-v0 expert.demo": "'expert.demo' exists; --force replaces it",
        "expert.demo minari:taken-v0": "A Minari dataset with ID taken-v0 already exists",
        "expert.demo minari:taken": "'minari:taken': expected a name that ends in a version, such as taken-v0",
        "expert.demo minari:new-v0 --behavior A": "--behavior: of no use",
    }.items():
        said = mlagents_style("demo-convert", *line.split())
        assert (said.code, words in said.err) == (2, True), said.err
        assert "Traceback" not in said.err


BROKEN: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], str]] = {
    "a last observation is missing": (
        "observations", lambda values: values[:-1],
        r"observations of 'observation': expected shape \(6, 3\) for 5 steps, got \(5, 3\)",
    ),
    "observations are not finite": (
        "observations", lambda values: values * np.nan,
        "observations of 'observation': expected finite numbers, got nan",
    ),
    "an action is missing": (
        "actions", lambda values: values[1:],
        r"continuous actions: expected shape \(5, 2\) for 5 steps, got \(4, 2\)",
    ),
    "no steps": ("rewards", lambda values: values[:0], "expected steps, found none"),
}  # fmt: skip
"""An array of an episode of five steps, its change, and the complaint."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_episode_is_refused(name: str) -> None:
    from gymnasium import spaces

    from unity_bridge.simulators.foreign.roles import interface_of

    sees, does = (spaces.Box(-1, 1, (size,), np.float32) for size in (3, 2))
    arrays = {"observations": np.ones((6, 3)), "actions": np.ones((5, 2)), "rewards": np.ones(5)}
    arrays |= {"terminations": np.arange(5) == 4, "truncations": np.zeros(5, np.bool_)}
    interface = interface_of(sees, does, ForeignCode("a test"))
    assert len(_segment(SimpleNamespace(**arrays), interface)) == 5
    array, change, complaint = BROKEN[name]
    arrays[array] = change(arrays[array])
    with pytest.raises(SceneError, match=complaint):
        _segment(SimpleNamespace(**arrays), interface)


def test_a_broken_episode_of_a_dataset_is_named(mlagents_style, minari: Any) -> None:
    import h5py
    from gymnasium import spaces

    make_dataset(
        minari, "wild/box-v0", spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
    )
    with h5py.File(Path("minari/wild/box-v0/data/main_data.hdf5"), "r+") as file:
        del file["episode_1"]["actions"]
    said = mlagents_style("demo-convert", "minari:wild/box-v0", "box.demo")
    assert said.code == 2
    assert said.err.startswith(
        "mlagents-style: error: 'minari:wild/box-v0', episode 1: reading it raised KeyError"
    )
    assert not Path("box.demo").exists()
