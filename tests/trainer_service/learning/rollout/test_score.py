"""What a score says of itself."""

from __future__ import annotations

import pytest

from trainer_service.learning.rollout.episode_scores import Score


def test_a_printed_score_is_its_statistics_and_not_every_episode() -> None:
    score = Score(returns=(1.0, 3.0) * 500, lengths=(10, 20) * 500, teams=(0,) * 1000)
    assert repr(score) == "Score(episodes=1000, mean_return=2, std_return=1, mean_length=15)"


def test_the_value_counts_groups_and_agents_without_one() -> None:
    own = {"returns": (1.0, 2.0, 7.0), "lengths": (4, 4, 4), "teams": (0, 0, 0)}
    groups = {"group_returns": (3.0,), "group_teams": (0,)}
    assert Score(**own, **groups, agent_indices=(0, 1, -1)).value == 5.0
    assert Score(**own, **groups).value == 3.0
    assert Score(**own, agent_indices=(0, 1, -1)).value == pytest.approx(10 / 3)
    assert Score((), (), ()).value is None
