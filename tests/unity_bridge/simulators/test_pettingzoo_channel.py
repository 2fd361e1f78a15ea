"""PettingZoo environments as processes of their own, through a real channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpe2 import simple_speaker_listener_v4, simple_spread_v3, simple_tag_v3

from unity_bridge.programs.executables import resolve_program
from unity_bridge.server.bridge import Bridge, Tick
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.process

Choose = Callable[[str, StepBatch, ActionSpec], ActionBatch]
Heard = list[Mapping[str, StepBatch]]


@pytest.fixture
def hear(tmp_path: Path) -> Callable[..., tuple[dict[str, BehaviorSpec], Heard]]:
    """Launches an environment and answers it; returns its behaviors and what it said."""

    def run(
        env: str, *arguments: str, messages: int, choose: Choose
    ) -> tuple[dict[str, BehaviorSpec], Heard]:
        specs: dict[str, BehaviorSpec] = {}
        received: Heard = []
        with Bridge(BridgeSettings(seed=1, run_logs=tmp_path, timeout_wait_s=60)) as bridge:
            bridge.launch(resolve_program(env, arguments))
            while len(received) < messages:
                for tick in bridge.receive(60.0):
                    assert isinstance(tick, Tick), tick
                    specs |= tick.new_specs
                    received.append(tick.steps)
                    answers = {
                        behavior: choose(behavior, batch, specs[behavior].action_spec)
                        for behavior, batch in tick.steps.items()
                    }
                    bridge.reply(tick.simulator, answers)
        return specs, received

    return run


@pytest.fixture
def programs_can_be_imported(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the programs importable in the processes that a test starts."""
    search = (str(repository / "tests" / "programs"), os.environ["PYTHONPATH"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))


def chosen_of(agent: int, asked: int) -> int:
    """The action of an agent that is asked for the n-th time: arbitrary, but always the same."""
    return (agent * 7 + asked * asked) % 3


def counting() -> Choose:
    asked: dict[int, int] = {}

    def choose(behavior: str, batch: StepBatch, spec: ActionSpec) -> ActionBatch:
        choices = []
        for agent in batch.agent_ids[batch.num_terminal :].tolist():
            asked[agent] = asked.get(agent, -1) + 1
            choices.append([chosen_of(agent, asked[agent])])
        discrete = np.array(choices, np.int32).reshape(len(choices), 1)
        return ActionBatch(np.zeros((len(choices), 0), np.float32), discrete)

    return choose


def returns_of(received: Heard) -> dict[int, list[float]]:
    """Complete episodes of each agent."""
    running: dict[int, float] = {}
    complete: dict[int, list[float]] = {}
    for steps in received:
        for batch in steps.values():
            for row, agent in enumerate(batch.agent_ids.tolist()):
                running[agent] = running.get(agent, 0.0) + float(batch.rewards[row])
                if row < batch.num_terminal:
                    complete.setdefault(agent, []).append(running.pop(agent))
    return complete


def returns_directly(module: Any, copy: int, seed: int, steps: int) -> dict[int, list[float]]:
    env = module.parallel_env()
    agents = env.possible_agents
    env.reset(seed=seed + 1000 * copy)
    running, complete = dict.fromkeys(agents, 0.0), {agent: [] for agent in agents}
    for step in range(steps):
        actions = {agent: chosen_of(copy * len(agents) + i, step) for i, agent in enumerate(agents)}
        _, rewards, _, truncated, _ = env.step(actions)
        for agent in agents:
            running[agent] += rewards[agent]
            if truncated[agent]:
                complete[agent].append(running[agent])
                running[agent] = 0.0
        if not env.agents:
            env.reset()
    return {copy * len(agents) + i: complete[agent] for i, agent in enumerate(agents)}


@pytest.mark.parametrize("module", [simple_spread_v3, simple_speaker_listener_v4, simple_tag_v3])
def test_returns_through_the_channel_are_those_of_the_environment_itself(hear, module: Any) -> None:
    env, steps = f"pettingzoo:{module.__name__}", 80
    _, received = hear(env, "--copies", "2", "--seed", "9", messages=steps + 1, choose=counting())
    complete = returns_of(received)
    expected = returns_directly(module, 0, 9, steps) | returns_directly(module, 1, 9, steps)
    assert {agent: len(returns) for agent, returns in expected.items()} == dict.fromkeys(expected, 3)
    assert set(complete) == set(expected)
    for agent, returns in complete.items():
        np.testing.assert_allclose(returns, expected[agent], rtol=1e-5, atol=1e-6)


def test_behaviors_groups_and_states_arrive(hear) -> None:
    specs, received = hear(
        "pettingzoo:mpe2.simple_speaker_listener_v4", "--copies", "3", messages=3, choose=counting()
    )
    assert {name: [sensor.name for sensor in spec.observation_specs] for name, spec in specs.items()} == {
        "simple_speaker_listener_v4_speaker?team=0": ["observation", "global_state"],
        "simple_speaker_listener_v4_listener?team=0": ["observation", "global_state"],
    }
    for steps in received:
        speaker = steps["simple_speaker_listener_v4_speaker?team=0"]
        listener = steps["simple_speaker_listener_v4_listener?team=0"]
        assert speaker.group_ids.tolist() == listener.group_ids.tolist() == [1, 2, 3]
        assert (speaker.agent_ids.tolist(), listener.agent_ids.tolist()) == ([0, 2, 4], [1, 3, 5])
        np.testing.assert_array_equal(speaker.observations[1], listener.observations[1])
        joined = np.concatenate([speaker.observations[0], listener.observations[0]], axis=1)
        np.testing.assert_array_equal(speaker.observations[1], joined)


@pytest.mark.usefixtures("programs_can_be_imported")
def test_early_deaths_late_arrivals_masks_and_arguments_arrive(hear) -> None:
    def choose(behavior: str, batch: StepBatch, spec: ActionSpec) -> ActionBatch:
        return ActionBatch.zeros(len(batch) - batch.num_terminal, spec)

    specs, received = hear(
        "pettingzoo:nursery_v1",
        "--env-kwargs", '{"limit": 3}',
        "--behaviors", "kid_*=Kid,*=Nurse?team=1",
        "--no-with-state",
        "--seed", "4",
        messages=5,
        choose=choose,
    )  # fmt: skip
    assert {name: spec.action_spec for name, spec in specs.items()} == {
        "Kid?team=0": ActionSpec(0, (3,)),
        "Nurse?team=1": ActionSpec(1),
    }
    kids = [steps["Kid?team=0"] for steps in received]
    assert [batch.agent_ids.tolist() for batch in kids] == [
        [0, 1, 2],
        [0, 1, 2],
        [1, 2],
        [2, 0, 1, 2],
        [0, 1, 2],
    ]
    assert [batch.terminated.tolist() for batch in kids[:3]] == [
        [False, False, False],
        [True, False, False],
        [True, False],
    ]
    assert kids[3].truncated.tolist() == [True, False, False, False]
    assert kids[1].allowed_actions[1:].tolist() == [[True, False, True]] * 2
    assert kids[0].observations[0][:, 2].tolist() == [4, 4, 4]
    assert [("Nurse?team=1" in steps) for steps in received] == [False, False, True, True, False]
    assert received[3]["Nurse?team=1"].truncated.tolist() == [True]
    assert received[3]["Nurse?team=1"].rewards.tolist() == [5], "0 in [−1, 1] is 5 in [0, 10]"
