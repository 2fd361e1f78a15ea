"""Which games count, and who won them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer_service.learning.rollout.games import GameLedger, side_batch
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import StepBatch


def tick(
    deciding: Sequence[int],
    ended: Sequence[tuple[int, float]] = (),
    *,
    group: int = 0,
    interrupted: bool = False,
) -> StepBatch:
    """Agents that decide, without rewards, and agents that ended with their last reward."""

    def rows(agents: Sequence[int], rewards: Sequence[float], over: bool) -> StepBatch:
        count = len(agents)
        return step_batch(
            [np.zeros((count, 1), np.float32)],
            np.array(rewards, np.float32),
            agent_ids=np.array(agents, np.int64),
            terminated=np.full(count, over and not interrupted),
            truncated=np.full(count, over and interrupted),
            group_ids=np.full(count, group, np.int64),
        )

    return concatenate(
        rows([agent for agent, _ in ended], [reward for _, reward in ended], True),
        rows(deciding, [0.0] * len(deciding), False),
    )


def test_an_interrupted_game_is_a_draw() -> None:
    ledger = GameLedger(1)
    ledger.observe(0, 0, tick([1]))
    ledger.observe(0, 0, tick([], [(1, 5.0)], interrupted=True))
    assert ledger.results == [0.5]
    assert ledger.num_interrupted == 1


def test_the_first_games_to_start_count() -> None:
    ledger = GameLedger(2)
    ledger.observe(0, 0, tick([1, 2]))
    ledger.observe(0, 0, tick([1, 2], [(1, 1.0)]))
    ledger.observe(0, 0, tick([1, 2], [(1, 1.0)]))  # agent 1's second game began third
    assert not ledger.complete
    ledger.observe(0, 0, tick([], [(2, -1.0)]))
    assert ledger.results == [1.0, 0.0]
    assert ledger.lengths == [1, 3]


def test_behaviors_of_one_side_play_one_game_with_their_group() -> None:
    ledger = GameLedger(2)
    ledger.observe(0, 0, side_batch([tick([1], group=4), tick([2, 3], group=4)]))
    ledger.observe(0, 0, side_batch([tick([], [(1, 2.0)], group=4), tick([3], [(2, 4.0)], group=4)]))
    assert ledger.num_ended == 0
    joined = side_batch([tick([1], group=4), tick([2], [(3, -7.0)], group=4)])
    assert joined.agent_ids.tolist() == [3, 1, 2]  # whose episode ended comes first, whatever its behavior
    ledger.observe(0, 0, joined)
    assert ledger.results == [0.0]
    assert ledger.returns == [-1.0]
