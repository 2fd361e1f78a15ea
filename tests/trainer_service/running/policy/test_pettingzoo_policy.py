"""A policy in the loop of a PettingZoo environment acts as in training and in ``evaluate``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import trainer_service
from trainer_service.errors import UserError

pytestmark = pytest.mark.process

OF_TWO = {"sizes": (2,), "continuous": 1}
"""A behavior whose agents see two numbers."""
MEMORY = {"network_settings": {"memory": {"memory_size": 8, "sequence_length": 4}}}
SHORT = {"max_steps": 60, "hyperparameters": {"batch_size": 16, "buffer_size": 32, "learning_rate": 0.02}}


@pytest.fixture(autouse=True)
def importable(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "tests" / "programs"))


def program(name: str, **given: Any) -> Any:
    """The environment of one of the test programs."""
    module = importlib.import_module(name)
    return getattr(module, "parallel_env", getattr(module, "env", None))(**given)


def play(agents: list[Any], env: Any, episodes: int, seed: int) -> None:
    """Plays episodes in a loop as users write it."""
    for episode in range(episodes):
        observations, infos = env.reset(seed=seed if episode == 0 else None)
        for each in agents:
            each.reset()
        while env.agents:
            actions: dict[str, Any] = {}
            for each in agents:
                actions |= each.act(observations, infos)
            observations, _, _, _, infos = env.step({agent: actions[agent] for agent in env.agents})


@pytest.mark.parametrize(
    ("masks", "settings"),
    [("observation", {"trainer_type": "ppo", **MEMORY}), ("info", {"trainer_type": "happo"})],
    ids=["memory", "happo"],
)
def test_agents_that_leave_and_come_act_as_in_evaluate(masks: str, settings: Any, tmp_path: Path) -> None:
    """Two behaviors, of which critics saw a state; masks, memories, and agents with actors of their own."""

    def make() -> Any:
        return program("nursery_v1", masks=masks, limit=6)

    run = trainer_service.train(
        {**SHORT, **settings}, make(), run_id="n", seed=5, results_dir=tmp_path, verbose=0
    )
    evaluated, env = make(), make()
    scores = trainer_service.evaluate(run, lambda: evaluated, env_args=[], episodes=9, seed=3)
    policies = [trainer_service.load_policy(run, name) for name in scores]
    assert [policy.behavior for policy in policies] == ["nursery_v1_kid", "nursery_v1_nurse"]
    play([policy.wrap(env) for policy in policies], env, 3, seed=3)
    told, expected = ([dict(numbers(step)) for step in each.received[:18]] for each in (env, evaluated))
    assert [list(step) for step in told] == [list(step) for step in expected]
    assert [list(step.values()) for step in told] == [
        pytest.approx(list(step.values()), rel=1e-5) for step in expected
    ]


def numbers(step: dict[str, Any]) -> list[tuple[str, float]]:
    return [(agent, float(np.sum(action))) for agent, action in step.items()]


class Crowd:
    """What is looked at of a parallel environment."""

    metadata: dict[str, Any] = {"name": "Probe"}  # noqa: RUF012

    def __init__(self, **seen: int) -> None:
        self.possible_agents = list(seen)
        self.agents = list(seen)
        self._seen = seen

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1, 1, (self._seen[agent],))

    def action_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1, 1, (1,))

    def observations(self) -> dict[str, Any]:
        return {agent: np.full(self._seen[agent], 0.5, np.float32) for agent in self.agents}


def test_a_memory_is_an_agents_own_and_forgotten_at_reset_and_by_one_that_leaves(policy) -> None:
    env = Crowd(a=2, b=2)
    agent = policy(**OF_TWO, **MEMORY).wrap(env)
    first = agent.act(env.observations())
    env.agents = ["a"]
    second = agent.act(env.observations())
    env.agents = ["a", "b"]
    third = agent.act(env.observations())
    assert first["a"] == first["b"] == third["b"]
    assert len({float(step["a"][0]) for step in (first, second, third)}) == 3
    agent.reset()
    assert agent.act(env.observations()) == first


def test_an_agent_that_comes_gets_the_lowest_free_index(policy) -> None:
    """As in training, which docs/groups.md describes."""
    env = Crowd(a=2, b=2, c=2)
    happo = policy(**OF_TWO, trainer_type="happo", hyperparameters={"group_size": 3})
    agent = happo.wrap(env)
    seen = np.full((3, 2), 0.5, np.float32)
    by_index = happo.act(seen, agent_indices=[0, 1, 2]).continuous[:, 0]
    assert len(set(by_index.tolist())) == 3
    for there, indices in (
        (["b", "c"], [0, 1]),
        (["c"], [1]),
        (["a", "c"], [0, 1]),
        (["a", "b", "c"], [0, 2, 1]),
    ):
        env.agents = there
        acts = agent.act(env.observations())
        assert [float(acts[name][0]) for name in there] == pytest.approx(by_index[indices].tolist())
    agent.reset()
    assert float(agent.act(env.observations())["c"][0]) == pytest.approx(float(by_index[2]))


def test_agents_are_found_by_name_by_what_they_see_or_by_what_is_said(policy) -> None:
    env = Crowd(a_0=2, a_1=2, b_0=3)
    assert list(policy(**OF_TWO).wrap(env).act(env.observations())) == ["a_0", "a_1"], (
        "only these see two numbers"
    )
    assert list(policy(**OF_TWO).wrap(env, agents=["a_1"]).act(env.observations())) == ["a_1"]
    env.agents = ["a_1", "b_0"]
    assert list(policy(**OF_TWO).wrap(env).act(Crowd(a_0=2, a_1=2, b_0=3).observations())) == ["a_1"], (
        "others left"
    )


def test_agents_of_other_behaviors_are_named(policy) -> None:
    decide = policy(**OF_TWO)
    with pytest.raises(
        UserError, match=r"agent 'a_0' is not what .* 'Probe' was trained for: .* shape \(2,\), now \(3,\)"
    ):
        decide.wrap(Crowd(a_0=3))
    with pytest.raises(
        UserError, match=r"called 'Probe'; they have 'Probe_a' \(a_0\); 'Probe_b' \(b_0\): say which"
    ):
        decide.wrap(Crowd(a_0=3, b_0=4))
    with pytest.raises(UserError, match="agents: expected some of a_0, got 'a_9'"):
        decide.wrap(Crowd(a_0=2), agents=["a_9"])
