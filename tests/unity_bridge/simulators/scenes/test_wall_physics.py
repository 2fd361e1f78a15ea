from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.wall_physics import BLOCK_STOP, Courses

HOLD, LEFT, RIGHT = 0, -1, 1


def course(*, x: float, wall: float = 0.0, block: float | None = None) -> Courses:
    courses = Courses(1)
    everybody = np.ones(1, np.bool_)
    has_block = np.array([block is not None])
    place = np.array([BLOCK_STOP if block is None else block])
    courses.place(everybody, np.array([x]), np.array([wall]), place, has_block)
    return courses


def advance(courses: Courses, run: int, times: int = 1, *, jump: bool = False) -> None:
    for _ in range(times):
        courses.advance(np.full(len(courses.x), run), np.full(len(courses.x), jump))


def test_jump_height_and_duration_match_their_formulas() -> None:
    # v = 14, g = 20: v²/2g = 4.9 m, 2v/g = 1.4 s = 7 advances. In between y = 14 t − 10 t².
    courses = course(x=-7)
    advance(courses, HOLD, jump=True)
    assert courses.y == pytest.approx(14 * 0.2 - 10 * 0.04)
    assert courses.rising == pytest.approx(14 - 20 * 0.2)
    assert not courses.grounded
    advance(courses, HOLD, 2)
    assert courses.y == pytest.approx(14 * 0.6 - 10 * 0.36)
    advance(courses, HOLD, 3)
    assert not courses.grounded
    advance(courses, HOLD)
    assert (courses.y, courses.rising) == (0, 0)
    assert courses.grounded


@pytest.mark.parametrize(("height", "gets_over"), [(4.0, True), (4.8, True), (5.0, False)])
def test_walls_up_to_4_8_metres_can_be_jumped(height: float, gets_over: bool) -> None:
    courses = course(x=-4, wall=height)
    advance(courses, RIGHT, 10, jump=True)
    assert (courses.x > 1) == gets_over


def test_nothing_ever_lies_in_anything_else() -> None:
    rng = np.random.default_rng(8)
    count = 200
    courses = Courses(count)
    walls = rng.choice([0, 1, 3.9, 4, 4.5, 8], count)
    has_block = rng.random(count) < 0.7
    start, block = rng.uniform(-8, -7, count), rng.uniform(-5, -2, count)
    courses.place(np.ones(count, np.bool_), start, walls, block, has_block)
    run = rng.integers(-1, 2, count)
    for _ in range(400):
        run = np.where(rng.random(count) < 0.2, rng.integers(-1, 2, count), run)
        courses.advance(run, rng.random(count) < 0.3)
        in_wall = (np.abs(courses.x) < 1 - 1e-9) & (courses.y < walls)
        in_block = has_block & (np.abs(courses.x - courses.block) < 2 - 1e-9) & (courses.y < 4)
        assert not in_wall.any()
        assert not in_block.any()
        assert (courses.y >= 0).all()
        assert (courses.x >= -8.5).all()
        assert (np.abs(courses.block[has_block] + 4.75) <= 2.75).all()
