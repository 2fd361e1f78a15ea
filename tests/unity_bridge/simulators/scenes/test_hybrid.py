from __future__ import annotations

import itertools

import numpy as np
import pytest

from unity_bridge.simulators.scenes.hybrid import BEHAVIOR, BEST_RETURN, GRAB, HOLD, RELEASE, Hybrid
from unity_bridge.steps import ActionBatch, StepBatch


def actions(drive, hook, shelf) -> ActionBatch:
    return ActionBatch(np.array(drive, np.float32)[:, None], np.stack([hook, shelf], axis=1).astype(np.int32))


def deliver(steps: StepBatch) -> ActionBatch:
    """Works the hook whenever it may, and drives to where it will be wanted next."""
    order, trolley = steps.observations
    hook = np.where(steps.allowed_actions[:, GRAB], GRAB, HOLD)
    hook = np.where(steps.allowed_actions[:, RELEASE], RELEASE, hook)
    laden = ((trolley[:, 1] > 0) | (hook == GRAB)) & (hook != RELEASE)
    return actions(np.where(laden, 1, -1), hook, order.argmax(axis=1))


def stay(steps: StepBatch) -> ActionBatch:
    nothing = np.zeros(len(steps))
    return actions(nothing, nothing, steps.allowed_actions[:, 3:].argmax(axis=1))


def test_best_policy_earns_the_documented_return(play) -> None:
    episodes = play(Hybrid(3), deliver, steps=3 * 64)
    assert pytest.approx(5.86) == BEST_RETURN
    for agent, ended in episodes.items():
        assert len(ended) == (3, 1, 1)[agent]
        for episode in ended:
            assert episode == (pytest.approx(BEST_RETURN, abs=1e-4), 64, False)


def test_random_allowed_actions_earn_little(play) -> None:
    rng = np.random.default_rng(0)

    def policy(steps: StepBatch) -> ActionBatch:
        def choose(allowed: np.ndarray) -> np.ndarray:
            return (rng.random(allowed.shape) * allowed).argmax(axis=1)

        hook, shelf = choose(steps.allowed_actions[:, :3]), choose(steps.allowed_actions[:, 3:])
        return actions(rng.uniform(-1, 1, len(steps)), hook, shelf)

    episodes = play(Hybrid(60), policy, steps=400)
    returns = [return_ for ended in episodes.values() for return_, _, _ in ended]
    assert np.mean(returns) == pytest.approx(-0.9, abs=0.15)


def test_agents_are_asked_in_their_own_rhythm() -> None:
    scene = Hybrid(4)
    steps = scene.reset(0)[BEHAVIOR]
    asked = []
    for _ in range(7):
        asked.append(steps.agent_ids.tolist())
        steps = scene.step({BEHAVIOR: stay(steps)})[BEHAVIOR]
    every, second, third = [0, 3], [0, 1, 3], [0, 2, 3]
    assert asked == [[0, 1, 2, 3], every, second, third, second, every, [0, 1, 2, 3]]


def test_episode_ends_are_sent_before_the_agents_turn() -> None:
    scene = Hybrid(3)
    steps = scene.reset(0)[BEHAVIOR]
    place = np.zeros(3)
    while steps.num_terminal == 0:  # agent 2 runs to the right, the others stay
        runs = (steps.agent_ids == 2).astype(float)
        place[2] += 0.25 * runs.sum()
        steps = scene.step({BEHAVIOR: actions(runs, stay(steps).discrete[:, 0], stay(steps).discrete[:, 1])})[
            BEHAVIOR
        ]
    assert place[2] == 1.25  # on 1.0 it still stood
    assert steps.num_terminal == 1
    assert steps.agent_ids[0] == 2
    assert steps.terminated[0]
    assert 2 not in steps.agent_ids[1:]
    assert steps.rewards[0] == pytest.approx(-1.01)


def test_one_shelf_is_empty_but_never_the_ordered_one() -> None:
    scene = Hybrid(1)
    steps = scene.reset(0)[BEHAVIOR]
    empty = set()
    for _ in range(40):
        shelves = steps.allowed_actions[0, 3:]
        assert shelves.sum() == 2
        assert shelves[steps.observations[0][0].argmax()]
        empty.add(int(shelves.argmin()))
        steps = scene.step({BEHAVIOR: stay(steps)})[BEHAVIOR]
    assert len(empty) == 2


def at_the_depot(scene: Hybrid) -> StepBatch:
    steps = scene.reset(0)[BEHAVIOR]
    for _ in range(2):
        steps = scene.step({BEHAVIOR: actions([-1], [HOLD], [0])})[BEHAVIOR]
    return steps


def test_the_hook_is_masked_by_place_and_load() -> None:
    scene = Hybrid(1)
    assert scene.reset(0)[BEHAVIOR].allowed_actions[0, :3].tolist() == [True, False, False]
    steps = at_the_depot(scene)
    assert steps.allowed_actions[0, :3].tolist() == [True, True, False]
    order = int(steps.observations[0][0].argmax())
    steps = scene.step({BEHAVIOR: actions([1], [GRAB], [order])})[BEHAVIOR]
    assert steps.rewards[0] == pytest.approx(0.49)
    assert steps.observations[1][0].tolist() == [-0.5, 1]
    assert steps.allowed_actions[0, :3].tolist() == [True, False, False]
    for _ in range(4):
        steps = scene.step({BEHAVIOR: actions([1], [HOLD], [order])})[BEHAVIOR]
    assert steps.allowed_actions[0, :3].tolist() == [True, False, True]
    steps = scene.step({BEHAVIOR: actions([1], [RELEASE], [order])})[BEHAVIOR]
    assert steps.rewards[0] == pytest.approx(0.49)
    assert steps.observations[1][0].tolist() == [0.5, 0]


def test_the_wrong_crate_costs_a_little_and_is_not_loaded() -> None:
    scene = Hybrid(1)
    steps = at_the_depot(scene)
    wrong = steps.allowed_actions[0, 3:] & (steps.observations[0][0] == 0)
    steps = scene.step({BEHAVIOR: actions([0], [GRAB], [int(wrong.argmax())])})[BEHAVIOR]
    assert steps.rewards[0] == pytest.approx(-0.11)
    assert steps.observations[1][0, 1] == 0


def test_new_orders_come_only_with_releases() -> None:
    scene = Hybrid(1)
    steps = scene.reset(0)[BEHAVIOR]
    orders, released = [], []
    for _ in range(64):
        orders.append(int(steps.observations[0][0].argmax()))
        action = deliver(steps)
        released.append(int(action.discrete[0, 0]) == RELEASE)
        steps = scene.step({BEHAVIOR: action})[BEHAVIOR]
    changed = [after != before for before, after in itertools.pairwise(orders)]
    assert sum(released) == 6
    assert any(changed)
    assert all(release for release, change in zip(released, changed, strict=False) if change)


def test_forbidden_choices_do_nothing() -> None:
    scene = Hybrid(1)
    steps = at_the_depot(scene)
    empty = int(steps.allowed_actions[0, 3:].argmin())
    for hook, shelf in ((RELEASE, 0), (GRAB, empty)):
        steps = scene.step({BEHAVIOR: actions([0], [hook], [shelf])})[BEHAVIOR]
        assert steps.rewards[0] == pytest.approx(-0.01)
        assert steps.observations[1][0].tolist() == [-0.5, 0]
        empty = int(steps.allowed_actions[0, 3:].argmin())


@pytest.mark.parametrize(("drive", "way"), [(0.25, 0.125), (-0.5, -0.25), (1.0, 0.25), (-3.0, -0.25)])
def test_half_an_action_is_full_speed(drive: float, way: float) -> None:
    scene = Hybrid(1)
    scene.reset(0)
    steps = scene.step({BEHAVIOR: actions([drive], [HOLD], [0])})[BEHAVIOR]
    assert steps.observations[1][0, 0] == way


def test_a_picture_shows_the_trolley_move() -> None:
    scene = Hybrid(1)
    scene.reset(0)
    before = scene.render()
    scene.step({BEHAVIOR: actions([1], [HOLD], [0])})
    assert before.shape == scene.render().shape
    assert not np.array_equal(before, scene.render())
