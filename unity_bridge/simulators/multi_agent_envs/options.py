"""The options of environments of several agents, whoever wrote them, and their flags on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from unity_bridge.simulators.scene import SceneError, flag_of

OWN_OPTIONS = ("with_state", "behaviors")
"""Options that no scene of ours understands."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that only these environments understand."""
    parser.add_argument(
        "--with-state",
        action=argparse.BooleanOptionalAction,
        help="show a central critic the state of the whole environment, or do not; it is shown where agents "
        "have several behaviors and see no pictures (pettingzoo: or gymma:)",
    )
    parser.add_argument(
        "--behaviors",
        type=_behaviors,
        metavar="AGENTS=NAME,...",
        help="what agents' behaviors are called, such as 'agent_*=good,adversary_*=bad' (pettingzoo: or gymma:)",
    )


def require_known(env: str, agents: int | None, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses what an environment has no use for.

    Args:
        env: as the user wrote it.
        agents: the user's number of agents, which these environments do not take.
        given: options by name.
        known: the options that it understands.

    Raises:
        SceneError: something else was given.
    """
    expected = ", ".join(map(flag_of, known))
    if agents is not None:
        raise SceneError(f"{env}: --agents is for scenes without teams; expected {expected}")
    for option in given:
        if option not in known:
            raise SceneError(f"{env}: it has no {flag_of(option)}; expected {expected}")


def _behaviors(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text.split(","):
        pattern, equals, behavior = part.partition("=")
        if not (pattern and equals and behavior):
            raise argparse.ArgumentTypeError(f"expected AGENTS=NAME,..., got {text!r}")
        pairs.append((pattern, behavior))
    return tuple(pairs)
