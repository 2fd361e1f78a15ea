"""Pictures: several copies side by side, a single one magnified."""

from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.spread import Spread
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.rendering.drawing import MARK, PAPER, Canvas, grid_cells
from unity_bridge.simulators.scenes.array_scene import LARGEST, ArrayScene
from unity_bridge.simulators.scenes.basic import Basic
from unity_bridge.simulators.scenes.gridworld import GridWorld
from unity_bridge.simulators.scenes.hallway import Hallway
from unity_bridge.simulators.scenes.pyramids import Pyramids
from unity_bridge.simulators.scenes.wall_jump import WallJump

RED = (200, 0, 0)


def test_a_canvas_multiplies_places_and_lengths_by_its_scale() -> None:
    canvas = Canvas(20, 10, scale=3)
    canvas.rectangle((2, 1), (4, 3), fill=RED, outline=RED)
    canvas.circle((10, 5), 2, fill=RED, outline=RED)
    canvas.polygon([(14, 2), (18, 2), (18, 6), (14, 6)], fill=RED, outline=RED)
    pixels = canvas.pixels()
    assert pixels.shape == (30, 60, 3)
    assert {tuple(pixels[y, x]) for x, y in ((6, 3), (12, 9), (30, 15), (35, 15), (45, 9))} == {RED}
    assert {tuple(pixels[y, x]) for x, y in ((5, 3), (14, 9), (30, 23), (59, 29))} == {PAPER}


def test_pasted_pixels_become_squares() -> None:
    pixels = np.random.default_rng(1).integers(255, size=(2, 3, 3), dtype=np.uint8)
    canvas = Canvas(10, 10, scale=2)
    canvas.paste(pixels, 4, 5)
    np.testing.assert_array_equal(canvas.pixels()[10:14:2, 8:14:2], pixels)
    np.testing.assert_array_equal(canvas.pixels()[11:14:2, 9:14:2], pixels)


@pytest.mark.parametrize(
    ("scene", "scale"),
    [(WallJump(1), 3), (Hallway(1), 2), (Pyramids(1), 2), (GridWorld(1), 4), (Basic(1), 1), (Spread(1), 1)],
    ids=lambda value: type(value).__name__ if isinstance(value, ArrayScene) else str(value),
)
def test_a_single_copy_is_drawn_as_large_as_the_limits_allow(scene: ArrayScene, scale: int) -> None:
    scene.reset(seed=1)
    height, width, _ = scene.render().shape
    assert (width, height) == (scale * scene.cell[0], scale * scene.cell[1])
    assert width <= LARGEST[0]
    assert height <= LARGEST[1]


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
