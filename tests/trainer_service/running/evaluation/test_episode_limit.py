"""Episodes that are cut: how a tick counts under a limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer_service.learning.rollout.episode_scores import EpisodeLedger
from trainer_service.learning.rollout.whole_episodes import WholeEpisodes
from trainer_service.running.evaluation.episode_limit import EpisodeLimit, LimitedBatch
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch


def tick(deciding: Sequence[int], ended: Sequence[int] = (), *, group: int = 0) -> StepBatch:
    """Agents that earned 1 and decide, and agents that earned 10 and ended. Each sees its own number."""

    def rows(agents: Sequence[int], reward: float, over: bool) -> StepBatch:
        count = len(agents)
        return step_batch(
            [np.array(agents, np.float32).reshape(count, 1)],
            np.full(count, reward, np.float32),
            agent_ids=np.array(agents, np.int64),
            terminated=np.full(count, over),
            group_ids=np.full(count, group, np.int64),
        )

    return concatenate(rows(ended, 10.0, True), rows(deciding, 1.0, False))


def seen_by(limit: EpisodeLimit, *ticks: StepBatch) -> list[LimitedBatch]:
    return [limit.observe(0, 0, each) for each in ticks]


def test_an_episode_at_the_limit_is_truncated_where_it_stands() -> None:
    *_, before, at = seen_by(EpisodeLimit(2), tick([1, 2]), tick([1, 2]), tick([2, 1, 3]))
    assert before.batch.num_terminal == 0
    assert at.batch.agent_ids.tolist() == [2, 1, 3]
    assert at.batch.truncated.tolist() == [True, True, False]
    assert at.batch.rewards.tolist() == [1.0] * 3
    assert at.batch.observations[0].ravel().tolist() == [2.0, 1.0, 3.0]
    assert (at.cut.tolist(), at.waiting.tolist()) == ([True, True], [2])


def test_the_rest_of_a_cut_episode_is_left_out_to_its_end() -> None:
    limit = EpisodeLimit(1)
    *_, rest, ended, anew = seen_by(limit, tick([1]), tick([1]), tick([1]), tick([1], [1]), tick([1]))
    assert len(rest.batch) == 0
    assert ended.batch.agent_ids.tolist() == [1]  # the end is left out, the next episode begins
    assert ended.batch.num_terminal == 0
    assert anew.batch.truncated.tolist() == [True]


def test_agents_are_idle_until_a_reset_once_all_are_cut() -> None:
    limit = EpisodeLimit(2)
    seen_by(limit, tick([1]), tick([1, 2]), tick([1, 2]))
    assert limit.has_cut(0)
    assert not limit.is_idle(0)
    assert limit.longest == 1
    seen_by(limit, tick([1, 2]))
    assert limit.is_idle(0)
    limit.drop(0)
    (anew,) = seen_by(limit, tick([1, 2]))
    assert anew.waiting.tolist() == [0, 1]
    assert not limit.has_cut(0)


def test_a_group_is_cut_with_its_first_member_at_the_limit() -> None:
    limit = EpisodeLimit(2)
    seen_by(limit, tick([1], group=7), tick([1, 2], group=7))
    (seen,) = seen_by(limit, concatenate(tick([]), concatenate(tick([1, 2, 3], group=7), tick([4, 5]))))
    assert seen.batch.agent_ids.tolist() == [1, 2, 4, 5]  # agent 3 joins a group that is out
    assert seen.cut.tolist() == [True, True]
    ended = concatenate(tick([], [1, 2, 3], group=7), tick([1, 2], group=7))
    (anew,) = seen_by(limit, ended)
    assert anew.batch.agent_ids.tolist() == [1, 2]
    assert anew.batch.num_terminal == 0


def test_a_ledger_scores_what_was_earned_until_the_cut() -> None:
    limit, ledger = EpisodeLimit(2), EpisodeLedger(2)
    for each in (tick([1], group=3), tick([1], group=3), tick([1], group=3), tick([1], [1], group=3)):
        seen = limit.observe(0, 0, each)
        ledger.observe(0, 0, seen.batch, seen.cut)
    for seen in seen_by(limit, tick([], [1], group=3)):
        ledger.observe(0, 0, seen.batch, seen.cut)
    score = ledger.score()
    assert (score.returns, score.lengths, score.cut) == ((2.0, 10.0), (2, 1), (True, False))
    assert score.group_returns == (2.0, 10.0)
    assert score.to_json()["cut_episodes"] == score.num_cut == 1


def test_a_cut_episode_is_recorded_as_truncated() -> None:
    limit, episodes = EpisodeLimit(2), WholeEpisodes(1)
    nothing = ActionBatch(np.zeros((1, 0), np.float32), np.zeros((1, 0), np.int32))
    ended = []
    for each in (tick([1]), tick([1]), tick([1]), tick([1])):
        seen = limit.observe(0, 0, each)
        ended += episodes.observe(0, 0, seen.batch, seen.cut)
        episodes.acted(0, 0, each, nothing)
    (segment,) = ended
    assert (len(segment), segment.truncated, segment.terminated) == (2, True, False)
    assert (episodes.num_cut, episodes.complete) == (1, True)
