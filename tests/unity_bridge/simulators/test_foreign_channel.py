"""Environments of PettingZoo and in lists as processes of their own, through a real channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpe2 import simple_speaker_listener_v4

from unity_bridge.programs.executables import resolve_program
from unity_bridge.server.bridge import Bridge, Tick
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.process

Received = list[Mapping[str, StepBatch]]
Choose = Callable[[int, StepBatch, ActionSpec], ActionBatch]


@pytest.fixture
def hear(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Received]:
    """Launches an environment and answers each message, by its number; returns what it said."""
    search = (str(repository / "tests" / "programs"), os.environ["PYTHONPATH"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))

    def run(env: str, *arguments: str, messages: int, choose: Choose) -> Received:
        specs: dict[str, ActionSpec] = {}
        received: Received = []
        with Bridge(BridgeSettings(seed=1, run_logs=tmp_path, timeout_wait_s=60)) as bridge:
            bridge.launch(resolve_program(env, arguments))
            while len(received) < messages:
                for tick in bridge.receive(60.0):
                    assert isinstance(tick, Tick), tick
                    specs |= {name: spec.action_spec for name, spec in tick.new_specs.items()}
                    answers = {
                        name: choose(len(received), batch, specs[name]) for name, batch in tick.steps.items()
                    }
                    received.append(tick.steps)
                    bridge.reply(tick.simulator, answers)
        return received

    return run


def choices(chosen: list[int]) -> ActionBatch:
    discrete = np.array(chosen, np.int32).reshape(len(chosen), 1)
    return ActionBatch(np.zeros((len(chosen), 0), np.float32), discrete)


def first_allowed(message: int, batch: StepBatch, spec: ActionSpec) -> ActionBatch:
    """The first choice that is allowed, counted from the number of the message."""
    orders = [np.roll(np.arange(batch.allowed_actions.shape[1]), -message)] * len(batch)
    allowed = batch.allowed_actions[batch.num_terminal :]
    return choices([int(order[mask[order].argmax()]) for order, mask in zip(orders, allowed, strict=False)])


def zeros(message: int, batch: StepBatch, spec: ActionSpec) -> ActionBatch:
    return ActionBatch.zeros(len(batch) - batch.num_terminal, spec)


def choice_of(agent: int, message: int) -> int:
    return (agent * 7 + message * message) % 3


def by_agent(message: int, batch: StepBatch, spec: ActionSpec) -> ActionBatch:
    return choices([choice_of(agent, message) for agent in batch.agent_ids[batch.num_terminal :].tolist()])


def told(received: Received, what: str) -> list[Any]:
    return [getattr(batch, what).tolist() for steps in received for batch in steps.values()]


def returns_of(received: Received) -> dict[int, list[float]]:
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


def returns_directly(copy: int, seed: int, steps: int) -> dict[int, list[float]]:
    env = simple_speaker_listener_v4.parallel_env()
    agents = env.possible_agents
    env.reset(seed=seed + 1000 * copy)
    running, complete = dict.fromkeys(agents, 0.0), {agent: [] for agent in agents}
    for step in range(steps):
        _, rewards, _, truncated, _ = env.step(
            {agent: choice_of(copy * len(agents) + i, step) for i, agent in enumerate(agents)}
        )
        for agent in agents:
            running[agent] += rewards[agent]
            if truncated[agent]:
                complete[agent].append(running[agent])
                running[agent] = 0.0
        if not env.agents:
            env.reset()
    return {copy * len(agents) + i: complete[agent] for i, agent in enumerate(agents)}


def test_returns_through_the_channel_are_those_of_the_environment_itself(hear) -> None:
    env, steps = "pettingzoo:mpe2.simple_speaker_listener_v4", 80
    received = hear(env, "--copies", "2", "--seed", "9", messages=steps + 1, choose=by_agent)
    complete = returns_of(received)
    expected = returns_directly(0, 9, steps) | returns_directly(1, 9, steps)
    assert {agent: len(returns) for agent, returns in expected.items()} == dict.fromkeys(range(4), 3)
    assert set(complete) == set(expected)
    for agent, returns in complete.items():
        np.testing.assert_allclose(returns, expected[agent], rtol=1e-5, atol=1e-6)


def test_early_deaths_late_arrivals_masks_and_arguments_arrive(hear) -> None:
    received = hear(
        "pettingzoo:nursery_v1",
        "--env-kwargs", '{"limit": 3}',
        "--behaviors", "kid_*=Kid,*=Nurse?team=1",
        "--no-with-state",
        "--seed", "4",
        messages=5,
        choose=zeros,
    )  # fmt: skip
    kids = [steps["Kid?team=0"] for steps in received]
    assert [each.agent_ids.tolist() for each in kids] == [[0, 1, 2]] * 2 + [[1, 2], [2, 0, 1, 2], [0, 1, 2]]
    assert [each.terminated.tolist() for each in kids[:3]] == [
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


def test_lists_arrive_with_masks_groups_and_common_rewards(hear) -> None:
    kwargs = '{"ends": "each", "masks": "action_mask", "limit": 3}'
    received = hear(
        "gymma:foragers:Foragers-v0", "--copies", "2", "--seed", "4", "--env-kwargs", kwargs,
        "--common-reward", "sum", messages=4, choose=first_allowed,
    )  # fmt: skip
    assert told(received, "agent_ids") == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 4, 5],
        [2, 5, 0, 1, 3, 4],
        [0, 1, 3, 4, 0, 1, 2, 3, 4, 5],
    ]
    assert told(received, "group_ids")[0] == [1, 1, 1, 2, 2, 2]
    assert received[0]["Foragers-v0?team=0"].observations[0][::3, 2].tolist() == [4, 1004]
    assert told(received, "allowed_actions")[1] == [[True, False, True]] * 6
    # All choose 0, then 2; then those who are left 0 again beside the 0 of who is done. Places 0, 1 and 2 are added.
    assert told(received, "group_rewards")[1:] == [[3] * 6, [9] * 6, [3] * 4 + [0] * 6]
    assert not any(batch.rewards.any() for steps in received for batch in steps.values())
    assert told(received, "terminated")[3] == [True] * 4 + [False] * 6
