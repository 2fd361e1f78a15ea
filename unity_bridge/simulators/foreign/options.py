"""The options of environments of other libraries, and their flags on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from unity_bridge.simulators.scene import SceneError, flag_of
from unity_bridge.simulators.schemes import OPTIONS_OF_KIND, SCHEMES

VECTOR_MODES = ("sync", "async", "vector_entry_point")
"""Gymnasium's names for how copies are stepped."""


def _behaviors(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text.split(","):
        pattern, equals, behavior = part.partition("=")
        if not (pattern and equals and behavior):
            raise argparse.ArgumentTypeError(f"expected AGENTS=NAME,..., got {text!r}")
        pairs.append((pattern, behavior))
    return tuple(pairs)


_FLAGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "wrap": (
        "put a wrapper around each copy, Gymnasium's (FrameStackObservation:4, AtariPreprocessing:frame_skip=4) "
        "or a function of your own (module:function); can be repeated, the last one is outermost",
        {"action": "append", "metavar": "WRAPPER[:ARGUMENTS]"},
    ),
    "vector": (
        "how copies are stepped: one after the other (sync, the default), each in a process of its own (async), "
        "or by the environment's own vectorized implementation",
        {"choices": VECTOR_MODES},
    ),
    "with_state": (
        "show a central critic the state of the whole environment, or do not; it is shown where agents "
        "have several behaviors and see no pictures",
        {"action": argparse.BooleanOptionalAction},
    ),
    "behaviors": (
        "what agents' behaviors are called, such as 'agent_*=good,adversary_*=bad'",
        {"type": _behaviors, "metavar": "AGENTS=NAME,..."},
    ),
    "aec": (
        "let agents act in turn even where they could act at the same time",
        {"action": "store_true", "default": None},
    ),
    "common_reward": (
        "pay each group the sum or the mean of its agents' rewards, instead of each agent its own",
        {"choices": ("sum", "mean")},
    ),
}

"""By option: what it means, and further arguments of argparse."""

FOREIGN_OPTIONS = tuple(_FLAGS)
"""Options that no scene of ours understands."""


def named_schemes(option: str | None = None, last: str = "and") -> str:
    """The schemes whose environments understand an option, in words: ``gym: and gymma:``; None for any option."""
    names = [
        f"{each.name}:"
        for each in SCHEMES.values()
        if (known := OPTIONS_OF_KIND.get(each.kind)) and (option is None or option in known)
    ]
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that only these environments understand."""
    for option, (meaning, how) in _FLAGS.items():
        parser.add_argument(flag_of(option), help=f"{meaning} ({named_schemes(option, 'or')})", **how)


def require_known(env: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses options that an environment has no use for. Raises SceneError."""
    for option in given:
        if option not in known:
            raise SceneError(f"{env}: it has no {flag_of(option)}; expected {', '.join(map(flag_of, known))}")
