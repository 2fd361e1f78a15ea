"""A trained policy, used from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import trainer_service
from trainer_service.errors import UserError
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy, load_policy
from trainer_service.running.runs.checkpoint import save_checkpoint

TWO_OF_EACH = {"sizes": (2, 3), "continuous": 2, "branches": (2, 3)}
"""A behavior with two sensors, two numbers and two branches."""
MEMORY = {"hidden_units": 8, "num_layers": 1, "memory": {"memory_size": 6, "sequence_length": 4}}


@pytest.fixture
def recurrent_policy(policy) -> Policy:
    made: Policy = policy(**TWO_OF_EACH, network_settings=MEMORY)
    return made


def seen(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(rows, size)).astype(np.float32) for size in (2, 3)]


def test_actions_are_as_a_simulator_takes_them(policy) -> None:
    actions = policy(**TWO_OF_EACH).act(seen(500), deterministic=False)
    assert actions.continuous.shape == (500, 2)
    assert actions.continuous.dtype == np.float32
    assert np.abs(actions.continuous).max() <= 1.0
    assert actions.discrete.shape == (500, 2)
    assert actions.discrete.dtype == np.int32
    assert [set(column) for column in actions.discrete.T.tolist()] == [{0, 1}, {0, 1, 2}]


@pytest.mark.parametrize("deterministic", [True, False])
def test_masked_actions_are_never_chosen(policy, deterministic: bool) -> None:
    allowed = np.ones((300, 5), np.bool_)
    allowed[:150, 0] = False  # the first branch's first choice, for half of the agents
    allowed[150:, 2:4] = False  # of the second branch all but the last, for the others
    discrete = policy(**TWO_OF_EACH).act(seen(300), allowed, deterministic=deterministic).discrete
    assert set(discrete[:150, 0].tolist()) == {1}
    assert set(discrete[150:, 1].tolist()) == {2}


@pytest.mark.parametrize(
    ("observations", "allowed", "expected"),
    [
        ([np.zeros((4, 2))], None, "expected 2 observation arrays, got 1"),
        (
            [np.zeros((4, 5)), np.zeros((4, 3))],
            None,
            r"sensor 'sensor_0': expected shape \(M, 2\), got \(4, 5\)",
        ),
        (
            [np.zeros((4, 2)), np.zeros((3, 3))],
            None,
            r"sensor 'sensor_1': expected shape \(4, 3\), got \(3, 3\)",
        ),
        (
            [np.zeros((4, 2)), np.zeros((4, 3))],
            np.ones((4, 3)),
            r"allowed_actions: expected shape \(4, 5\), got \(4, 3\)",
        ),
        (
            [np.zeros((2, 2)), np.zeros((2, 3))],
            [[1, 1, 0, 0, 1], [1, 0, 0, 0, 0]],
            r"action mask: no choice is left in branch 1 of \(2, 3\)",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named(policy, observations, allowed, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        policy(**TWO_OF_EACH).act(observations, allowed)


def test_a_policy_is_loaded_from_the_folder_of_a_run(make_behavior, tmp_path: Path) -> None:
    behavior = make_behavior(name="Walker", sizes=(2,), continuous=1)
    behavior.step = 1234
    save_checkpoint(checkpoint_of(behavior), tmp_path / "Walker" / "checkpoint.safetensors")
    loaded = trainer_service.load_policy(tmp_path)
    assert (loaded.behavior, loaded.step, loaded.spec) == ("Walker", 1234, behavior.spec)
    array = np.ones((3, 2))
    expected = Policy(checkpoint_of(behavior)).act(array)
    np.testing.assert_array_equal(loaded.act(array).continuous, expected.continuous)


def test_of_several_behaviors_one_must_be_named(make_behavior, tmp_path: Path) -> None:
    for name in ("Walker", "Flyer"):
        save_checkpoint(checkpoint_of(make_behavior(name=name)), tmp_path / name / "checkpoint.safetensors")
    assert load_policy(tmp_path, "Flyer").behavior == "Flyer"
    with pytest.raises(UserError, match="one of several behaviors must be named; it has Flyer, Walker"):
        load_policy(tmp_path)
    with pytest.raises(UserError, match="no behavior 'Fly'; it has Flyer, Walker"):
        load_policy(tmp_path, "Fly")


def test_memories_are_passed_in_and_returned(recurrent_policy) -> None:
    decide = recurrent_policy
    assert decide.memory_size == 6
    first, memories = decide.predict(seen(20))
    assert memories.shape == (20, 6)
    assert memories.dtype == np.float32
    before = memories.copy()
    later, kept = decide.predict(seen(20), memories)
    np.testing.assert_array_equal(memories, before)  # the caller's own array is left alone
    assert not np.allclose(later.continuous, first.continuous, atol=1e-3)
    assert not np.allclose(kept, memories, atol=1e-3)
    again, _ = decide.predict(seen(20), memories)
    np.testing.assert_array_equal(again.continuous, later.continuous)


def test_memories_are_zero_at_an_episodes_start(recurrent_policy) -> None:
    decide = recurrent_policy
    fresh, _ = decide.predict(seen(20))
    _, memories = decide.predict(seen(20))
    starts, given = np.arange(20) % 2 == 0, memories.copy()
    actions, _ = decide.predict(seen(20), memories, episode_starts=starts)
    np.testing.assert_array_equal(memories, given)
    continued, _ = decide.predict(seen(20), memories)
    np.testing.assert_allclose(actions.continuous[starts], fresh.continuous[starts], atol=1e-6)
    np.testing.assert_allclose(actions.continuous[~starts], continued.continuous[~starts], atol=1e-6)


def test_a_policy_with_a_memory_is_not_asked_without_it(recurrent_policy) -> None:
    with pytest.raises(ValueError, match=r"'Probe' has a memory: use predict\(\)"):
        recurrent_policy.act(seen(3))


def test_memories_that_are_no_numbers_are_refused(recurrent_policy) -> None:
    _, memories = recurrent_policy.predict(seen(3))
    memories[1] = np.nan
    with pytest.raises(ValueError, match="memories: expected finite numbers"):
        recurrent_policy.predict(seen(3), memories)
    actions, _ = recurrent_policy.predict(seen(3), memories, episode_starts=[False, True, False])
    assert np.isfinite(actions.continuous).all()


def test_a_picture_of_whole_numbers_is_one_of_bytes(policy) -> None:
    decide = policy(sizes=((3, 20, 20),), branches=(5,))
    picture = np.random.default_rng(1).integers(0, 256, (4, 3, 20, 20))
    expected = decide.value([picture.astype(np.uint8)])
    np.testing.assert_array_equal(decide.value([picture]), expected)
    np.testing.assert_allclose(decide.value([picture / 255.0]), expected, atol=1e-6)
    with pytest.raises(ValueError, match="expected bytes, or floats from 0 to 1, got 300"):
        decide.value([np.full_like(picture, 300)])


def test_a_tensor_is_the_array_of_a_single_sensor(policy) -> None:
    decide = policy(sizes=(4,), continuous=1)
    tensor = torch.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(decide.act(tensor).continuous, decide.act(tensor.numpy()).continuous)


@pytest.mark.parametrize("device", ["foo", "cuda:99"])
def test_a_device_that_is_missing_is_named(make_behavior, device: str) -> None:
    with pytest.raises(UserError, match=f"device '{device}' cannot be used"):
        Policy(checkpoint_of(make_behavior()), device=device)
