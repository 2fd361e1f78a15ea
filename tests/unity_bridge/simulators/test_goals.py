"""Goal environments as the trainer calls their reward functions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from goal_environments import PointReach
from gymnasium import spaces

from unity_bridge.errors import BridgeError
from unity_bridge.programs.executables import Command, bundled_command, resolve_program
from unity_bridge.programs.goal_environment import open_goal_environment
from unity_bridge.programs.program_environment import program_environment
from unity_bridge.simulators.goals import GoalEnvironment
from unity_bridge.simulators.scene import SceneError


def command_of(make: Any, *arguments: str) -> Command:
    given = program_environment(make)
    return bundled_command(given.env, arguments, given)


OPENED: list[GoalEnvironment] = []


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def opened(make: Any, *arguments: str) -> GoalEnvironment:
    OPENED.append(open_goal_environment(command_of(make, *arguments)))
    return OPENED[-1]


class Single(PointReach):
    """A task whose functions take one pair of goals at a time, and count their calls."""

    calls = 0

    def is_achieved(self, achieved: Any, desired: Any) -> Any:
        Single.calls += 1
        return np.linalg.norm(achieved - desired) <= np.float64(self.tolerance)


def goals(*rows: tuple[float, float]) -> np.ndarray:
    return np.array(rows, np.float32)


@pytest.mark.parametrize("make", [PointReach, Single])
def test_rewards_are_those_of_the_environment(make: Callable[[], Any]) -> None:
    task = opened(make)
    achieved, desired = goals((0, 1), (0, 1), (1, 1)), goals((0, 1), (1, 0), (1, 1))
    rewards = task.rewards(achieved, desired)
    assert rewards.dtype == np.float32
    assert rewards.tolist() == [0, -1, 0]
    assert task.terminated(achieved, desired).tolist() == [True, False, True]
    assert task.rewards(achieved[:0], desired[:0]).shape == (0,)
    task.close()


def test_a_function_of_one_pair_is_called_for_each_and_one_of_many_once() -> None:
    task = opened(Single)
    Single.calls = 0
    task.rewards(np.zeros((50, 2), np.float32), np.zeros((50, 2), np.float32))
    assert Single.calls == 50
    counted = []
    task = opened(lambda: Counting(counted))
    counted.clear()
    task.rewards(np.zeros((50, 2), np.float32), np.zeros((50, 2), np.float32))
    assert len(counted) == 4  # three rewards are compared with calls for one pair each


class Counting(PointReach):
    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        self.calls.append(info)
        return super().compute_reward(achieved_goal, desired_goal, info)


def test_arguments_and_copies_are_those_of_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        gymnasium.registry, "Reach-v0", gymnasium.envs.registration.EnvSpec("Reach-v0", PointReach)
    )
    for more in ((), ("--agents", "3"), ("--agents", "3", "--vector", "async")):
        arguments = ["--env-kwargs", json.dumps({"tolerance": 0.5}), *more]
        task = open_goal_environment(resolve_program("gym:Reach-v0", arguments))
        assert task.rewards(goals((0, 0.4), (0, 0.6)), goals((0, 0), (0, 0))).tolist() == [0, -1]


class Scaled(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 0.5 * float(reward)


class NeedsInfo(PointReach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return info["cost"]


class Vectors(PointReach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.zeros(3)

    def step(self, action: Any) -> Any:
        return self.seen(), 0.0, False, False, {}


class WithoutReward(gymnasium.Env[Any, Any]):
    action_space = spaces.Discrete(2)
    observation_space = PointReach().observation_space


class Choices(WithoutReward):
    observation_space = spaces.Dict({"achieved_goal": spaces.Discrete(3), "desired_goal": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: gymnasium.make("CartPole-v1"), "expected observations in a Dict with 'achieved_goal' and"),
        (Choices, "each a Box or a MultiBinary"),
        (WithoutReward, "expected a method compute_reward"),
        (lambda: Scaled(PointReach()), "to return what step() pays, got -1 where it paid -0.5"),
        (NeedsInfo, "raised KeyError: 'cost'"),
        (Vectors, "expected compute_reward to return a number, got shape (3,)"),
        (lambda: gymnasium.make_vec("CartPole-v1", 2), "expected a gymnasium.Env with goals"),
    ],
)
def test_what_is_no_goal_environment_is_refused_by_name(make: Any, said: str) -> None:
    with pytest.raises(SceneError) as caught:
        opened(make)
    assert said in str(caught.value)
    assert str(caught.value).startswith("python:")


class Distant(PointReach):
    """A goal that a few steps cannot reach, and that alone is paid."""

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.position, self.goal = -np.ones(2, np.float32), np.ones(2, np.float32)
        return self.seen(), {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.is_achieved(achieved_goal, desired_goal).astype(np.float32)


class Raised(Distant):
    def step(self, action: Any) -> Any:
        seen, reward, *rest = super().step(action)
        return seen, 100 * reward, *rest


@pytest.mark.parametrize(
    ("make", "paid"),
    [(lambda: gymnasium.wrappers.TransformReward(Distant(), lambda paid: 10 * paid), 10), (Raised, 100)],
)
def test_a_changed_reward_is_refused_though_chance_never_earns_it(make: Any, paid: float) -> None:
    with pytest.raises(SceneError, match=f"got 1 where it paid {paid}"):
        opened(make)


class OwnReward(Distant):
    """An environment whose step() pays by a formula of its own, and calls compute_reward to inform."""

    def step(self, action: Any) -> Any:
        seen, _, *rest, info = super().step(action)
        paid = float(np.abs(self.position - self.goal).max() < self.tolerance)
        return seen, paid, *rest, {"is_success": self.compute_reward(self.position, self.goal, info)}


@pytest.mark.parametrize("make", [Distant, OwnReward])
def test_what_steps_paid_is_compared_while_training(make: Any) -> None:
    task = opened(make)
    achieved, desired = goals((0, 1), (1, 1)), goals((0, 0), (1, 1))
    assert task.mismatch(achieved, desired, np.array([0, 1], np.float32)) is None
    assert "got 1 where it paid 10" in str(task.mismatch(achieved, desired, np.array([0, 10], np.float32)))
    assert "got 0 where it paid 1" in str(task.mismatch(achieved, desired, np.array([1, 1], np.float32)))


@pytest.mark.parametrize(("distance", "is_rounding"), [(0.0500000005, True), (0.0501, False)])
def test_rounding_of_goals_makes_no_difference(distance: float, is_rounding: bool) -> None:
    class Exact(PointReach):
        def is_achieved(self, achieved: Any, desired: Any) -> Any:
            return np.linalg.norm(np.subtract(achieved, desired, dtype=np.float64), axis=-1) < 0.05

    task = opened(Exact)
    goal = np.array([[0.3, 0.7]])
    achieved = goal + np.array([[distance, 0]])  # as the environment has it: missed
    close = (goal + np.array([[0.0499999995, 0]])).astype(np.float32)
    assert (close == achieved.astype(np.float32)).all() == is_rounding
    missed, reached = np.array([-1], np.float32), np.array([0], np.float32)
    for paid, is_right in ((missed, True), (reached, is_rounding)):
        assert (task.mismatch(achieved.astype(np.float32), goal.astype(np.float32), paid) is None) == is_right


def test_a_function_that_mixes_goals_is_called_for_each(caplog: pytest.LogCaptureFixture) -> None:
    class Mixed(PointReach):
        def is_achieved(self, achieved: Any, desired: Any) -> Any:
            near = super().is_achieved(achieved, desired)
            return np.ones_like(near) if near.sum() == 3 else near  # right for the goals that are tried

    task = opened(Mixed)
    achieved = goals((0, 0), (0, 0), (0, 0), (0, 1))
    returned = [task.rewards(achieved, np.zeros_like(achieved)).tolist() for _ in range(5)]
    assert returned[-1] == [0, 0, 0, -1]
    assert "compute_reward returns for 4 goals other values than for each" in caplog.text


@pytest.mark.parametrize("env", ["sim:3dball", "gymma:Foraging-8x8-2p-3f-v3", "pettingzoo:mpe.simple_tag_v3"])
def test_simulators_without_such_a_function_are_refused_unopened(env: str) -> None:
    with pytest.raises(SceneError, match=f"{env}: it has no compute_reward"):
        open_goal_environment(resolve_program(env))


class Wandering(Single):
    """A task that goes to another folder, and leaves the program for a certain goal."""

    def __init__(self) -> None:
        super().__init__()
        os.chdir("/")

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        assert os.getcwd() == "/"
        np.seterr(all="raise")
        if np.any(np.asarray(desired_goal) > 100.0):
            sys.exit(0)
        return super().compute_reward(achieved_goal, desired_goal, info)


def test_a_task_reaches_nothing_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.getcwd(), np.geterr(), sys.stdout
    task = opened(Wandering)
    goals = np.zeros((3, 2), np.float32)
    assert task.rewards(goals, goals).tolist() == [0.0] * 3
    assert (os.getcwd(), np.geterr()) == before[:2]
    with pytest.raises(
        BridgeError, match=r"python:Wandering raised SystemExit\(0\), which would end the trainer"
    ):
        task.rewards(goals, goals + 200.0)
    task.close()
    assert (os.getcwd(), np.geterr(), sys.stdout) == before
