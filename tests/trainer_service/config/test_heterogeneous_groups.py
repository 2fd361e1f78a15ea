"""The section ``teams``."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_service.config import dump_run_options, parse_run_options
from trainer_service.errors import ConfigError

MAPPO: dict[str, Any] = {"trainer_type": "mappo"}


def problems(**sections: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_run_options(sections, label="file")
    return list(raised.value.problems)


@pytest.mark.parametrize(
    "members", [["Leader", "Runner"], {"Leader": 1, "Runner": 3}, {"Leader": None, "Runner": 3}]
)
def test_members_are_a_list_or_have_counts(members: Any) -> None:
    options = parse_run_options({"teams": {"Pursuit": members}, "behaviors": {"Pursuit": MAPPO}}).options
    assert list(options.teams["Pursuit"]) == ["Leader", "Runner"]
    assert options.teams["Pursuit"]["Runner"] == (None if isinstance(members, list) else 3)
    import yaml

    assert parse_run_options(yaml.safe_load(dump_run_options(options))).options == options


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (["Leader"], "expected at least two behaviors, got 'Leader'"),
        (["Leader", "Leader"], "'Leader' stands there twice"),
        (3, "expected a list of behaviors, or a mapping from behaviors to numbers of agents, got 3"),
        ({"Leader": 0, "Runner": 1}, "expected at least 1, got 0"),
        ([1, 2], "expected the name of a behavior, got 1"),
        (["Leader", "a/b"], "must not contain slashes"),
    ],
)
def test_members_that_cannot_be_are_named(members: Any, expected: str) -> None:
    assert expected in problems(teams={"Pursuit": members}, behaviors={"Pursuit": MAPPO})[0]


def test_a_behavior_is_in_one_team_and_has_no_settings_of_its_own() -> None:
    found = problems(
        teams={"Pursuit": ["Leader", "Runner"], "Other": ["Leader", "Pursuit"]},
        behaviors={"Pursuit": MAPPO, "Other": MAPPO, "Runner": {}},
    )
    assert "teams.Other: 'Leader' is a member of 'Pursuit' already" in "\n".join(found)
    assert "teams.Other: 'Pursuit' is the name of a team" in "\n".join(found)
    assert "behaviors.Runner: expected no settings for 'Runner'" in "\n".join(found)


def test_a_team_needs_settings() -> None:
    (found,) = problems(teams={"Pursuit": ["Leader", "Runner"]})
    assert "teams.Pursuit: the team has no settings: add an entry for 'Pursuit' under 'behaviors'" in found
    parse_run_options({"teams": {"Pursuit": ["Leader", "Runner"]}, "default_settings": MAPPO})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"trainer_type": "ppo"}, "trainer_type: expected a trainer type for groups"),
        ({**MAPPO, "reward_signals": {"gail": {"demo_path": "x"}}}, "reward_signals.gail: expected none"),
        ({**MAPPO, "behavioral_cloning": {"demo_path": "x"}}, "behavioral_cloning: expected none"),
        (
            {**MAPPO, "hyperparameters": {"group_size": 3}},
            "hyperparameters.group_size: expected the number of agents of each member, teams: {Pursuit: {Leader: N, "
            "Runner: N}}, got group_size",
        ),
    ],
)
def test_settings_that_cannot_serve_a_team_are_named(settings: dict[str, Any], expected: str) -> None:
    teams = {"Pursuit": ["Leader", "Runner"]}
    assert f"file: behaviors.Pursuit.{expected}" in problems(teams=teams, behaviors={"Pursuit": settings})[0]
    assert "by default_settings" in problems(teams=teams, default_settings=settings)[0]


def test_a_group_size_must_be_the_sum_of_the_counts() -> None:
    def options(size: int) -> dict[str, Any]:
        settings = {**MAPPO, "hyperparameters": {"group_size": size}}
        return {"teams": {"Pursuit": {"Leader": 1, "Runner": 3}}, "behaviors": {"Pursuit": settings}}

    parse_run_options(options(4))
    assert (
        "expected 4, the sum of {Leader: 1, Runner: 3} under 'teams.Pursuit', got 5"
        in problems(**options(5))[0]
    )


def test_lessons_watch_the_team() -> None:
    criteria = {"behavior": "Leader", "measure": "reward", "threshold": 1.0}
    lessons = [{"name": "a", "value": 1.0, "completion_criteria": criteria}, {"name": "b", "value": 2.0}]
    (found,) = problems(
        teams={"Pursuit": ["Leader", "Runner"]},
        default_settings=MAPPO,
        environment_parameters={"height": {"curriculum": lessons}},
    )
    assert "expected the team 'Pursuit', of which 'Leader' is a member" in found
