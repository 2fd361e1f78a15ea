"""Environments in lists, and games in turns, as processes of their own, through a real channel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.programs.executables import resolve_program
from unity_bridge.server.bridge import Bridge, Tick
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.process

Said = list[Mapping[str, StepBatch]]


@pytest.fixture
def hear(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Launches an environment and answers it, each agent with the number of the message; returns what it said."""
    search = (str(repository / "tests" / "programs"), os.environ["PYTHONPATH"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))

    def run(env: str, *arguments: str, messages: int) -> Said:
        received: Said = []
        with Bridge(BridgeSettings(seed=1, run_logs=tmp_path, timeout_wait_s=60)) as bridge:
            bridge.launch(resolve_program(env, arguments))
            while len(received) < messages:
                for tick in bridge.receive(60.0):
                    assert isinstance(tick, Tick), tick
                    answers = {name: answer(len(received), batch) for name, batch in tick.steps.items()}
                    received.append(tick.steps)
                    bridge.reply(tick.simulator, answers)
        return received

    return run


def answer(message: int, batch: StepBatch) -> ActionBatch:
    """The first choice that is allowed, counted from the number of the message."""
    chosen = []
    for allowed in batch.allowed_actions[batch.num_terminal :]:
        order = np.roll(np.arange(len(allowed)), -message)
        chosen.append([int(order[np.flatnonzero(allowed[order])[0]])])
    discrete = np.array(chosen, np.int32).reshape(len(chosen), 1)
    return ActionBatch(np.zeros((len(chosen), 0), np.float32), discrete)


def told(received: Said, what: str) -> list[Any]:
    return [getattr(batch, what).tolist() for steps in received for batch in steps.values()]


def test_lists_arrive_with_masks_groups_and_common_rewards(hear: Callable[..., Said]) -> None:
    kwargs = '{"ends": "each", "masks": "action_mask", "limit": 3}'
    received = hear(
        "gymma:foragers:Foragers-v0", "--copies", "2", "--seed", "4", "--env-kwargs", kwargs,
        "--common-reward", "sum", messages=4,
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


def test_the_older_interface_is_cut_off_by_our_clock(hear: Callable[..., Said]) -> None:
    received = hear("gymma:foragers:OldForagers", "--steps", "2", "--env-kwargs", '{"limit": 9}', messages=3)
    assert told(received, "agent_ids") == [[0, 1, 2], [0, 1, 2], [1, 2, 0, 1, 2]]
    assert told(received, "terminated") == [[False] * 3, [True, False, False], [False] * 5]
    assert told(received, "truncated")[2] == [True, True, False, False, False]
    # 0, then 1 for those who are left; half a point more for each place.
    assert told(received, "rewards") == [[0, 0, 0], [0.5, 1.5, 2.5], [2.5, 3.5, 0, 0, 0]]


def test_games_in_turns_ask_one_agent_of_each_copy(hear: Callable[..., Said]) -> None:
    sides = "player_1=Board?team=0,player_2=Board?team=1"
    received = hear("pettingzoo:classic.tictactoe_v3", "--copies", "2", "--behaviors", sides, messages=8)
    # Cells 0 to 6 in their order: the first player fills the diagonal 2, 4, 6.
    assert [list(steps) for steps in received[:7]] == [[f"Board?team={i % 2}"] for i in range(7)]
    assert told(received[:7], "agent_ids") == [[[0, 2], [1, 3]][i % 2] for i in range(7)]
    last = received[7]
    assert last["Board?team=0"].rewards.tolist() == [1, 1, 0, 0]
    assert last["Board?team=1"].rewards.tolist() == [-1, -1]
    assert last["Board?team=1"].terminated.tolist() == [True, True]
    assert last["Board?team=0"].agent_ids.tolist() == [0, 2, 0, 2]
