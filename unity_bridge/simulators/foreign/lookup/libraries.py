"""The libraries of environments that are known by name: how their environments are called, and installed."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from unity_bridge.extras import install_hint


@dataclass(frozen=True, slots=True)
class Library:
    """A package that others publish."""

    module: str
    """As Python imports it."""

    install: str
    """The command that installs it."""

    names: tuple[str, ...]
    """The leading letters of its environments' ids."""

    example: str

    scheme: str = "gymma"
    """Of ``--env``: ``gymma`` for lists of agents, ``gym`` for single ones."""


LIBRARIES = (
    Library("ale_py", install_hint("atari"), ("ALE",), "ALE/Pong-v5", "gym"),
    Library(
        "minigrid",
        install_hint("minigrid"),
        ("MiniGrid", "BabyAI"),
        "MiniGrid-DoorKey-5x5-v0",
        "gym",
    ),
    Library(
        "lbforaging",
        install_hint("gymma"),
        ("Foraging",),
        "Foraging-8x8-2p-3f-v3",
    ),
    Library("rware", install_hint("gymma"), ("rware",), "rware-tiny-4ag-v2"),
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
    name = _first_word(env_id).lower()
    return next((each for each in LIBRARIES if name in map(str.lower, each.names)), None)


def nearest_id(env_id: str) -> str:
    """The id with its first word spelt as a library that is known does; empty where none is spelt alike."""
    word = _first_word(env_id)
    names = {name.lower(): name for each in LIBRARIES for name in each.names}
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.8)
    return names[near[0]] + env_id[len(word) :] if near else ""


def _first_word(env_id: str) -> str:
    return re.split(r"[^A-Za-z]", env_id, maxsplit=1)[0]


def library_called(module: str) -> Library | None:
    """The library that is imported under this name; None if it is not known."""
    return next((each for each in LIBRARIES if each.module == module), None)
