"""The score of a behavior in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_service.running.metrics import format_return


def score_lines(label: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Yields lines on a behavior's score, ``Score.to_json()``."""
    yield f"{label}: {_score_text(result)}"
    for team, of_team in result.get("teams", {}).items():
        yield f"  team {team}: {_score_text(of_team)}"
    for member, of_member in result.get("members", {}).items():
        yield f"  {member}: {_member_text(of_member)}"


def _member_text(result: Mapping[str, Any]) -> str:
    """The score of one behavior of a heterogeneous group in words."""
    if not result["episodes"]:
        return "no episodes"
    mean = _mean_text(result["mean_return"], result["std_return"])
    return f"mean return {mean} over {result['episodes']} episodes"


def _score_text(result: Mapping[str, Any]) -> str:
    """A score in words."""
    words = (
        f"mean return {_mean_text(result['mean_return'], result['std_return'])} "
        f"over {result['episodes']} episodes, mean length {result['mean_length']:.1f}"
    )
    if "cut_episodes" in result:
        words += f" ({result['cut_episodes']} of them cut at the limit of steps)"
    if not result["group_episodes"]:
        return words
    return (
        f"{words}; mean group return {_mean_text(result['mean_group_return'], result['std_group_return'])} "
        f"over {result['group_episodes']} episodes of groups"
    )


def _mean_text(mean: float, deviation: float) -> str:
    return f"{format_return(mean, deviation)} ± {format_return(deviation, mean)}"
