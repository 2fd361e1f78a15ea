"""Pictures: several copies side by side, a single one magnified."""

from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.rendering.drawing import MARK, grid_cells
from unity_bridge.simulators.scenes.array_scene import ArrayScene


def marked_pixels(scene: ArrayScene) -> np.ndarray:
    return (scene.render() == MARK).all(axis=2)


@pytest.mark.parametrize("name", ["3dball", "basic", "hybrid", "walljump", "gridworld"])
def test_the_copy_of_the_marked_agent_is_framed(name: str) -> None:
    scene = open_scene(f"sim:{name}", agents=3)
    assert isinstance(scene, ArrayScene)
    scene.reset(seed=1)
    assert not marked_pixels(scene).any()
    corners, _, _ = grid_cells(3, scene.cell, scene.columns)
    for agent, (left, top) in enumerate(corners):
        scene.marked = agent
        rows, columns = np.nonzero(marked_pixels(scene))
        width, height = scene.cell
        assert (columns.min() >= left, columns.max() < left + width) == (True, True)
        assert (rows.min() >= top, rows.max() < top + height) == (True, True)


@pytest.mark.parametrize("name", ["switch2", "spread", "pushblock", "goal", "duel"])
def test_each_agent_of_a_group_has_a_mark_of_its_own(name: str) -> None:
    scene = open_scene(f"sim:{name}", options={"copies": 2})
    assert isinstance(scene, ArrayScene)
    agents = sorted({int(each) for batch in scene.reset(seed=1).values() for each in batch.agent_ids})
    assert not marked_pixels(scene).any()
    seen = set()
    for scene.marked in agents:
        assert marked_pixels(scene).any()
        seen.add(marked_pixels(scene).tobytes())
    assert len(seen) == len(agents)
