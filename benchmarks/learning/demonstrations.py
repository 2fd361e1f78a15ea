"""What an expert does in a world, as a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from learning.lines import Line
from learning.worlds import BEHAVIOR, NAME, World
from unity_bridge.demonstrations import DemonstratedPiece, DemonstrationWriter

STEPS = 100


def record(world: World, path: Path, seed: int) -> None:
    """Writes the first episodes of an expert, as many as have 100 steps together."""
    scene = Line(world)
    scene.reset(seed)
    written = 0
    with DemonstrationWriter(path, NAME, scene.behaviors[BEHAVIOR]) as writer:
        while written < STEPS:
            episode = _episode(scene)
            writer.write(episode)
            written += len(episode)


def _episode(scene: Line) -> DemonstratedPiece:
    """An episode from its first decision to its end; the scene has begun the next one then."""
    actions, rewards = [], []
    seen = [scene.look()]
    ended = False
    while not ended:
        actions.append(scene.expert()[BEHAVIOR])
        batch = scene.step({BEHAVIOR: actions[-1]})[BEHAVIOR]
        # An end comes first in its message; the row behind it is of the next episode.
        seen.append([sensor[:1] for sensor in batch.observations])
        rewards.append(batch.rewards[0])
        ended = bool(batch.terminated[0])
    return DemonstratedPiece(
        observations=tuple(np.concatenate(sensor[:-1]) for sensor in zip(*seen, strict=True)),
        continuous_actions=np.concatenate([action.continuous for action in actions]),
        discrete_actions=np.concatenate([action.discrete for action in actions]).astype(np.int64),
        rewards=np.array(rewards, np.float32),
        group_rewards=np.zeros(len(actions), np.float32),
        final_observations=tuple(seen[-1]),
        terminated=True,
        truncated=False,
        starts_episode=True,
    )
