"""The cases of a comparison: simulators, their number, and their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unity_bridge.simulators.scenes.grid_camera import PictureFormat

CHECKOUT = Path(__file__).resolve().parents[2]
"""The project's root."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to play a scene."""

    name: str
    """For people; empty for a scene that is played in one way only."""

    pictures: PictureFormat | None
    """How its cameras send what they see; None for a scene without."""

    @property
    def options(self) -> tuple[str, ...]:
        """The simulator's arguments."""
        return ("--pictures", self.pictures) if self.pictures else ()


PLAIN = Variant("", None)


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulator and the settings that both trainers get for it."""

    name: str
    """As in ``sim:NAME``, and of its file in ``configs/``."""

    threshold: float
    """Mean return at which the task counts as learned."""

    agents: tuple[int, ...]
    """How many agents a simulator hosts, unless told otherwise."""

    steps: int
    """Agent steps at which a run is stopped, at least."""

    steps_per_agent: int
    """With many agents this much for each: until then unfinished episodes blur how many steps were made."""

    variants: tuple[Variant, ...] = (PLAIN,)
    """In which ways it is played."""

    program: tuple[str, ...] | None = None
    """The Python module of a simulator that is not bundled, and its first arguments."""

    team: int | None = None
    """How many agents a copy has, where agents come in teams."""

    @property
    def config(self) -> Path:
        """Where its settings are."""
        return CHECKOUT / "benchmarks" / "configs" / f"{self.name}.yaml"


SCENES = {
    scene.name: scene
    for scene in (
        Scene("3dball", threshold=90.0, agents=(12, 96), steps=204_000, steps_per_agent=3_000),
        Scene("basic", threshold=0.9, agents=(1,), steps=12_000, steps_per_agent=1_000),
        Scene("hallway", threshold=0.8, agents=(16,), steps=40_000, steps_per_agent=2_000),
        Scene("spread", threshold=-15.0, agents=(24,), steps=100_000, steps_per_agent=2_000, team=3),
        Scene("hybrid", threshold=4.0, agents=(12,), steps=61_440, steps_per_agent=1_000),
        Scene(
            "gridworld",
            threshold=0.8,
            agents=(9,),
            steps=12_000,
            steps_per_agent=500,
            variants=(
                Variant("PNG", "png"),
                Variant("floats", "float"),
            ),
        ),
    )
}
SLEEP_MS = 10
"""The time of a step of many Unity builds."""
SLEEPER = Scene(
    "sleeper",
    threshold=math.inf,  # there is nothing to learn
    agents=(12,),
    steps=72_000,
    steps_per_agent=0,
    program=("workers.sleeper", "--step-ms", str(SLEEP_MS)),
)
"""A build that takes its time without taking a core."""
BUILDS_AT_ONCE = (1, 8, 32)
_STEPS_PER_BUILD = 3_000
"""With many builds: until each of their agents has completed a trajectory, updates are fewer than they will be."""
DEFAULT_SCENES = ("3dball", "basic")


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison."""

    scene: Scene
    agents: int
    steps: int
    """A run is stopped at the first summary that has so many agent steps."""

    variant: Variant = PLAIN

    simulators: int = 1
    """How many play at once."""

    @property
    def copies(self) -> int | None:
        """How many teams that are; None in a scene without. The last team is always a whole one."""
        return None if self.scene.team is None else -(-self.agents // self.scene.team)

    @property
    def program(self) -> tuple[str, ...]:
        """The simulator's Python module and its arguments."""
        own = self.scene.program or ("unity_bridge.simulators", f"sim:{self.scene.name}")
        return *own, *self.options

    @property
    def options(self) -> tuple[str, ...]:
        """The simulator's arguments."""
        size = ("--agents", str(self.agents)) if self.copies is None else ("--copies", str(self.copies))
        return *size, *self.variant.options

    @property
    def title(self) -> str:
        """The scene and how it is played, for people."""
        return f"{self.scene.name} ({self.variant.name})" if self.variant.name else self.scene.name


def cases(names: Sequence[str], agents: Sequence[int] | None, steps: int | None) -> list[Case]:
    """Every named scene with every number of agents, in every way it is played.

    Args:
        names: of scenes; ``all`` is every scene.
        agents: None takes each scene's own.
        steps: None takes what suits the scene and the number of agents.
    """
    chosen = list(SCENES.values()) if "all" in names else [SCENES[name] for name in names]
    return [
        Case(scene, count, steps or max(scene.steps, scene.steps_per_agent * count), variant)
        for scene in chosen
        for count in agents or scene.agents
        for variant in scene.variants
    ]


def sleeping_builds(numbers: Sequence[int], agents: Sequence[int] | None, steps: int | None) -> list[Case]:
    """So many sleeping builds at once, with every number of agents.

    Args:
        numbers: of builds.
        agents: of each build; None takes 3DBall's.
        steps: None takes what shows some updates.
    """
    return [
        Case(SLEEPER, count, steps or max(SLEEPER.steps, _STEPS_PER_BUILD * number), simulators=number)
        for count in agents or SLEEPER.agents
        for number in numbers
    ]
