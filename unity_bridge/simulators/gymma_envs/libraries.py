"""The libraries of environments with lists that are known by name: how their environments are called, and installed."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Library:
    """A package that others publish."""

    module: str
    """As Python imports it."""

    install: str
    """How it is installed, a command."""

    names: tuple[str, ...]
    """What the ids of its environments begin with, up to the first that is no letter."""

    example: str


LIBRARIES = (
    Library(
        "lbforaging",
        "pip install 'trainer-service[gymma]'",
        ("Foraging",),
        "Foraging-8x8-2p-3f-v3",
    ),
    Library("rware", "pip install 'trainer-service[gymma]'", ("rware",), "rware-tiny-4ag-v2"),
    Library(
        "ma_gym",
        "pip install 'setuptools<66' 'wheel<0.39', then pip install --no-build-isolation --no-deps "
        "gym==0.20.0 ma-gym==0.0.14",
        ("Checkers", "Combat", "Lumberjacks", "PongDuel", "PredatorPrey", "Switch", "TrafficJunction"),
        "Checkers-v0",
    ),
    Library(
        "smaclite",
        "pip install git+https://github.com/uoe-agents/smaclite.git",
        ("smaclite",),
        "smaclite/2s3z-v0",
    ),
    Library(
        "gfootball",
        "follow https://github.com/google-research/football",
        ("academy",),
        "academy_3_vs_1_with_keeper",
    ),
)


def library_of(env_id: str) -> Library | None:
    """The library that has environments called like this one; None if none is known."""
    first = re.match(r"[A-Za-z]*", env_id)
    name = first.group().lower() if first else ""
    return next((each for each in LIBRARIES if name in map(str.lower, each.names)), None)


def library_called(module: str) -> Library | None:
    """The library that is imported under this name; None if it is not known."""
    return next((each for each in LIBRARIES if each.module == module), None)
