"""Google Research Football: its own way to make an environment with several players that are controlled."""

from __future__ import annotations

import importlib
from typing import Any

from unity_bridge.simulators.scene import SceneError

_PLAYERS = ("number_of_left_players_agent_controls", "number_of_right_players_agent_controls")


def make_football(scenario: str, **kwargs: Any) -> Any:
    """The environment of a scenario, in which each agent is a player.

    An agent sees the 115 numbers of ``simple115v2`` unless ``representation`` says otherwise. It earns goals; with
    ``rewards="scoring,checkpoints"`` also 0.1 for each tenth of the way to the goal that its player has brought
    the ball for the first time in an episode.

    Args:
        scenario: such as ``academy_3_vs_1_with_keeper``.
        kwargs: of ``gfootball.env.create_environment``.

    Raises:
        SceneError: fewer than two players are controlled; or it plays a single one, with another interface.
    """
    if sum(int(kwargs.get(name, 0)) for name in _PLAYERS) < 2:
        raise SceneError(
            f"how many players are agents? expected two or more, such as --env-kwargs '{{\"{_PLAYERS[0]}\": 3}}'"
        )
    football = importlib.import_module("gfootball.env")
    return football.create_environment(env_name=scenario, **{"representation": "simple115v2", **kwargs})
