"""A simulator without chance whose teams have a leader and two runners, behaviors of their own.

With ``--discrete`` they have choices alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from unity_bridge.simulators.client import run

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from pursuit_groups import PursuitGroups


class Pursuit(PursuitGroups):
    def __init__(self, *, discrete: bool = False) -> None:
        super().__init__(groups=2, same_episodes=True, discrete=discrete)


if __name__ == "__main__":
    scene = Pursuit(discrete="--discrete" in sys.argv)
    run(scene, int(sys.argv[sys.argv.index("--mlagents-port") + 1]), connect_timeout_s=30.0)
