"""How many copies of an environment share a simulator, where its user has not said."""

from __future__ import annotations

from collections.abc import Sequence

SINGLE_AGENT_COPIES, GROUP_COPIES = 8, 16
"""Copies of environments of one agent, and of several. More copies make a rollout more varied and its steps cheaper."""

_FLAGS = ("--agents", "--copies", "--vector")


def with_copies(env: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a simulator, with a number of copies where there is none and its scheme takes one."""
    scheme, _, name = env.partition(":")
    if any(argument.startswith(_FLAGS) for argument in arguments):
        return tuple(arguments)
    if scheme in ("pettingzoo", "gymma"):
        return (*arguments, "--copies", str(GROUP_COPIES))
    if scheme == "gym" or (scheme == "sim" and _has_few_agents(name)):
        return (*arguments, "--agents", str(SINGLE_AGENT_COPIES))
    return tuple(arguments)


def _has_few_agents(name: str) -> bool:
    """Whether a bundled scene without groups has few agents by default."""
    from unity_bridge.simulators.registry import SCENES  # all scenes

    return name in SCENES and SCENES[name].agents < SINGLE_AGENT_COPIES // 2
