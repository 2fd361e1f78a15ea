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


def test_running_makes_a_metre_in_each_advance() -> None:
    courses = course(x=-7)
    advance(courses, RIGHT)
    assert courses.x == pytest.approx(-6)
    advance(courses, LEFT)
    advance(courses, HOLD)
    assert courses.x == pytest.approx(-7)
    assert courses.y == 0


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


def test_jumps_in_the_air_do_nothing() -> None:
    once, always = course(x=-7), course(x=-7)
    advance(once, HOLD, jump=True)
    advance(once, HOLD, 3)
    advance(always, HOLD, 4, jump=True)
    assert always.y == once.y


def test_the_fence_stops_running_agents() -> None:
    courses = course(x=-8)
    advance(courses, LEFT, 3)
    assert courses.x == pytest.approx(-8.5)


@pytest.mark.parametrize("height", [0.5, 4, 8])
def test_a_wall_stops_agents_on_the_floor(height: float) -> None:
    courses = course(x=-3, wall=height)
    advance(courses, RIGHT, 4)
    assert courses.x == pytest.approx(-1)
    behind = course(x=3, wall=height)
    advance(behind, LEFT, 4)
    assert behind.x == pytest.approx(1)


def test_a_flat_wall_is_none() -> None:
    courses = course(x=-3)
    advance(courses, RIGHT, 6)
    assert courses.x == pytest.approx(3)
    assert courses.y == 0


@pytest.mark.parametrize(("height", "gets_over"), [(4.0, True), (4.8, True), (5.0, False)])
def test_walls_up_to_4_8_metres_can_be_jumped(height: float, gets_over: bool) -> None:
    courses = course(x=-4, wall=height)
    advance(courses, RIGHT, 10, jump=True)
    assert (courses.x > 1) == gets_over


def test_a_wall_can_be_stood_upon() -> None:
    courses = course(x=-3, wall=3.5)
    advance(courses, RIGHT, jump=True)
    advance(courses, RIGHT, 2)
    advance(courses, HOLD, 5)
    assert (courses.x, courses.y) == (pytest.approx(0), 3.5)
    assert courses.grounded


def test_a_block_is_pushed_to_the_wall_and_no_further() -> None:
    courses = course(x=-7, block=-4.5, wall=8)
    advance(courses, RIGHT)
    assert (courses.x, courses.block) == (pytest.approx(-6), pytest.approx(-4))
    advance(courses, RIGHT, 3)
    assert (courses.x, courses.block) == (pytest.approx(-4), pytest.approx(-2))
    advance(courses, LEFT, 2)
    assert courses.block == pytest.approx(-2)


def test_agents_in_the_air_do_not_push_blocks() -> None:
    courses = course(x=-6.2, block=-4)
    advance(courses, RIGHT, jump=True)
    assert (courses.x, courses.block) == (pytest.approx(-6), -4)


def test_a_block_can_be_climbed_and_crossed() -> None:
    courses = course(x=-7, block=-4, wall=4)
    advance(courses, RIGHT, jump=True)
    advance(courses, RIGHT, 4)
    assert courses.y == 4
    assert courses.grounded
    assert courses.block == -4


def test_stepping_off_a_block_is_a_fall() -> None:
    courses = course(x=-5, block=-5)
    courses.y[:] = 4
    advance(courses, RIGHT, 3)
    assert not courses.grounded
    assert 0 < courses.y < 4
    advance(courses, HOLD, 3)
    assert courses.y == 0
    advance(courses, LEFT, 2)  # against its right side, now
    assert courses.block < -5


def test_block_helps_over_a_wall_of_eight_metres() -> None:
    courses = course(x=-4, block=-2, wall=8)
    advance(courses, RIGHT, jump=True)
    advance(courses, RIGHT, 4)
    assert courses.y == 4
    advance(courses, RIGHT, jump=True)
    advance(courses, RIGHT, 9)
    assert courses.x > 4
    assert courses.y == 0


def test_courses_know_nothing_of_each_other() -> None:
    rng = np.random.default_rng(3)
    runs, jumps = rng.integers(-1, 2, (60, 5)), rng.random((60, 5)) < 0.5
    x, block, wall = rng.uniform(-8, -7, 5), rng.uniform(-5, -2, 5), np.array([0, 2, 4, 6, 8.0])
    has_block = np.array([True, False, True, True, True])

    def place(which: list[int]) -> Courses:
        courses = Courses(len(which))
        everybody = np.ones(len(which), np.bool_)
        courses.place(everybody, x[which], wall[which], block[which], has_block[which])
        for run, jump in zip(runs[:, which], jumps[:, which], strict=True):
            courses.advance(run, jump)
        return courses

    together = place([0, 1, 2, 3, 4])
    for i in range(5):
        alone = place([i])
        assert (alone.x, alone.y, alone.block) == (together.x[i], together.y[i], together.block[i])


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
