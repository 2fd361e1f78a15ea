"""Recordings of an expert's episodes in a world."""

from __future__ import annotations

from pathlib import Path

from learning.lines import Line
from learning.worlds import BEHAVIOR, NAME, World
from trainer_service.learning.rollout.whole_episodes import WholeEpisodes
from unity_bridge.demonstrations import DemonstrationWriter

STEPS = 100


def record(world: World, path: Path, seed: int) -> None:
    """Writes the first episodes of an expert, as many as have 100 steps together."""
    scene = Line(world)
    steps = scene.reset(seed)
    # None is shorter than a step.
    episodes, written = WholeEpisodes(STEPS), 0
    with DemonstrationWriter(path, NAME, scene.behaviors[BEHAVIOR]) as writer:
        while written < STEPS:
            batch, actions = steps[BEHAVIOR], scene.expert()
            for episode in episodes.observe(0, 0, batch):
                writer.write(episode)
                written += len(episode)
            episodes.acted(0, 0, batch, actions[BEHAVIOR])
            steps = scene.step(actions)
