"""The simulator of the learning tests, as the program that a trainer starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from learning.lines import Line
from learning.teams import Group, Sides
from learning.worlds import World
from unity_bridge.simulators.client import run
from unity_bridge.simulators.scene import Scene

_CONNECT_TIMEOUT_S = 60.0


def open_scene(world: World, tell: Callable[[int, int, float], None]) -> Scene:
    """The scene of a world.

    Args:
        world: what it is like.
        tell: hears of every episode's end: of which behavior, from 0, the steps of its episodes so far, and the return.
    """
    if len(world.behaviors) > 1:
        return Sides(world, tell)
    return (Group if world.agents > 1 else Line)(world, partial(tell, 0))


def main(argv: Sequence[str] | None = None) -> None:
    """Plays a world for the trainer on a port, and writes a line for every episode: side, steps so far, its return."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, required=True)
    parser.add_argument("--world", type=World.from_json, required=True)
    parser.add_argument("--episodes", type=Path, required=True)
    arguments, _ = parser.parse_known_args(argv)
    with arguments.episodes.open("w", buffering=1, encoding="utf-8") as file:
        scene = open_scene(arguments.world, lambda *told: print(*told, file=file))
        run(scene, arguments.mlagents_port, connect_timeout_s=_CONNECT_TIMEOUT_S)


if __name__ == "__main__":
    main()
