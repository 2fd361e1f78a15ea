"""A policy on a Gymnasium environment's own spaces."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trainer_service.errors import UserError
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import SceneError


def world(observation_space: Any, action_space: Any) -> Any:
    """What is looked at of an environment."""
    return SimpleNamespace(observation_space=observation_space, action_space=action_space)


SEEN = spaces.Dict({"b": spaces.Box(-1, 1, (3,)), "a": spaces.Discrete(2, start=5)})
"""A Dict whose sensors are sorted: a, one of two, then b, three numbers."""


OF_BOTH: dict[str, Any] = {"sizes": (2, 3), "continuous": 1, "branches": (3,)}
"""The behavior of these spaces."""
ACTS = spaces.Tuple((spaces.Box(10, 30, (1,)), spaces.Discrete(3, start=-1)))


def test_sensors_and_actions_are_those_of_the_spaces(policy) -> None:
    decide = policy(**OF_BOTH)
    numbers = np.array([0.1, -0.2, 0.3], np.float32)
    action, state = decide.wrap(world(SEEN, ACTS)).predict({"b": numbers, "a": 6})
    expected = decide.act([np.array([[0.0, 1.0]]), numbers[None]])
    assert state is None
    assert ACTS.contains(action)
    assert action[0] == pytest.approx(20 + 10 * expected.continuous[0])
    assert action[1] == expected.discrete[0, 0] - 1


def test_a_batch_is_decided_row_by_row(policy) -> None:
    agent = policy(**OF_BOTH).wrap(world(SEEN, ACTS))
    rows = np.random.default_rng(1).uniform(-1, 1, (4, 3)).astype(np.float32)
    batch, _ = agent.predict({"a": np.array([5, 6, 5, 6]), "b": rows})
    alone = [agent.predict({"a": 5 + i % 2, "b": row})[0] for i, row in enumerate(rows)]
    np.testing.assert_allclose(batch[0], [numbers for numbers, _ in alone], rtol=1e-6)
    np.testing.assert_array_equal(batch[1], [choice for _, choice in alone])


def test_a_memory_is_handed_back_and_forgotten_at_a_start(policy) -> None:
    memory = {"memory": {"memory_size": 8, "sequence_length": 4}}
    decide = policy(sizes=(2,), continuous=1, network_settings=memory)
    agent = decide.wrap(world(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))))
    seen = np.array([0.5, -0.5], np.float32)
    first, state = agent.predict(seen)
    later, _ = agent.predict(seen, state)
    again, _ = agent.predict(seen, state, episode_start=True)
    assert state is not None
    assert state.shape == (1, 8)
    assert later != first
    assert again == first


def test_masked_choices_are_not_taken(of_three: Policy) -> None:
    agent = of_three.wrap(world(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)))
    seen = np.zeros((6, 2), np.float32)
    masks = np.array([[0, 0, 1], [0, 1, 0]] * 3)
    actions, _ = agent.predict(seen, deterministic=False, action_masks=masks)
    assert actions.tolist() == [2, 1] * 3
    assert agent.predict(seen[0], action_masks=masks[0])[0] == 2
    with pytest.raises(ValueError, match="expected 6 of them, got 2"):
        agent.predict(seen, action_masks=masks[:2])


def test_another_environment_is_refused(policy) -> None:
    with pytest.raises(
        UserError, match=r"not what the policy of behavior 'Probe' was trained for: actions were"
    ):
        policy(**OF_BOTH).wrap(world(SEEN, spaces.Discrete(3)))
    with pytest.raises(UserError, match=r"expected a Gymnasium environment, got 'CartPole-v1'"):
        policy(**OF_BOTH).wrap("CartPole-v1")
    with pytest.raises(UserError, match="agents: expected an environment of PettingZoo, got "):
        policy(**OF_BOTH).wrap(world(SEEN, ACTS), agents=["agent_0"])


class OnlyTwo(gymnasium.Env[Any, Any]):
    """Allows one of three choices, which its method tells."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(3)

    def __init__(self, allowed: int = 2) -> None:
        self.allowed = allowed

    def action_masks(self) -> Any:
        return np.arange(3) == self.allowed


def test_an_environment_that_normalizes_is_refused(of_three: Policy) -> None:
    with pytest.raises(SceneError, match="NormalizeObservation"):
        of_three.wrap(gymnasium.wrappers.NormalizeObservation(OnlyTwo()))


ZEROS = np.zeros(2, np.float32)


@pytest.fixture
def of_three(policy) -> Policy:
    made: Policy = policy(sizes=(2,), branches=(3,))
    return made


def test_the_environments_own_method_masks(of_three: Policy) -> None:
    env = OnlyTwo()
    agent = of_three.wrap(env)
    for allowed in (2, 0, 1):
        env.allowed = allowed
        assert agent.predict(ZEROS, deterministic=False)[0] == allowed
        assert agent.predict(ZEROS[None], deterministic=False)[0].tolist() == [allowed]


def test_a_copy_acts_alike_and_asks_no_environment(of_three: Policy, caplog: Any) -> None:
    agent = of_three.wrap(OnlyTwo())
    agent.predict(ZEROS)
    twin = pickle.loads(pickle.dumps(agent))
    seen = np.random.default_rng(1).uniform(-1, 1, (9, 2)).astype(np.float32)
    everything = np.ones((9, 3))
    assert (
        twin.predict(seen, action_masks=everything)[0].tolist()
        == agent.predict(seen, action_masks=everything)[0].tolist()
    )
    assert not caplog.records
    twin.predict(ZEROS)
    assert "cannot be asked here" in caplog.text


def test_an_observation_that_is_not_finite_is_refused(of_three: Policy) -> None:
    agent = of_three.wrap(OnlyTwo())
    with pytest.raises(ValueError, match="sensor 'sensor_0': expected finite numbers, got nan"):
        agent.predict(np.array([0, np.nan], np.float32))
