from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from foreign_scenes import open_gym
from gymnasium import spaces

from unity_bridge.simulators.foreign.gymnasium import AGENT, GymnasiumEnvironment, MaskInInfo
from unity_bridge.simulators.foreign.masks import MASK
from unity_bridge.simulators.foreign.open import open_made
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.simulators.schemes import SceneRequest
from unity_bridge.simulators.third_party import ForeignCode


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps; terminates at ``end``, is truncated at ``limit``; shows the count."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - Gymnasium's own way
    observation_space = spaces.Box(0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(
        self, end: int = 3, limit: int = 100, trouble: str = "", render_mode: str | None = None
    ) -> None:
        self.end, self.limit, self.trouble = end, limit, trouble
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self.trouble == "reset":
            raise RuntimeError("no\nstart")
        self.count = 0
        return self._observe()[0] if self.trouble == "old reset" else self._observe()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.trouble == "step":
            raise ValueError("lost a wheel")
        self.count += 1
        observation, info = self._observe()
        if self.trouble == "old step":
            return observation, float(action), False, info  # type: ignore[return-value]  # as the old Gym did
        if self.trouble == "no reward":
            return observation, None, False, False, info
        ends = self.count >= self.end, self.count >= self.limit
        return observation, float(action), *ends, info

    def render(self) -> Any:
        if self.trouble == "no render":
            return super().render()
        return np.full((4, 6, 3), self.count, np.uint8) if self.trouble != "render" else None

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        return np.array([self.count]), {}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("tests/Counter-v0", entry_point=Counter)
    yield
    del gymnasium.registry["tests/Counter-v0"]


COUNTER, BEHAVIOR = "tests/Counter-v0", "Counter-v0?team=0"


def test_the_mask_of_a_method_is_a_copy() -> None:
    env, mask = Counter(), np.array([1, 0, 1])
    _, info = MaskInInfo(env, lambda: mask).reset()
    mask[:] = [0, 1, 0]
    assert info[MASK].tolist() == [1, 0, 1]


class Choices(Counter):
    """Counter with a mask in its info and another by its method, which knows nothing of a lost game."""

    def action_masks(self) -> list[int]:
        assert self.count < self.end
        return [1, 0, 0]

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        given = {"": {}, "none": {MASK: None}, "plural": {"action_masks": [0, 1, 0]}}
        return np.array([self.count]), given[self.trouble]


@pytest.mark.parametrize(("trouble", "mask"), [("", [1, 0, 0]), ("none", [1, 0, 0]), ("plural", [0, 1, 0])])
def test_the_mask_of_the_info_goes_before_the_methods(
    trouble: str, mask: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    env = GymnasiumEnvironment(Choices(end=2, trouble=trouble), ForeignCode("gym:Mine"))
    [first] = env.reset()
    assert list(first.mask) == mask
    env.step({AGENT: 0})
    [[last], _] = env.step({AGENT: 0})
    assert last.terminated
    assert not caplog.records


class Hinged(Counter):
    """Counter that cannot be closed."""

    def close(self) -> None:
        raise RuntimeError("no window")


def test_an_error_of_close_is_told_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []
    env = Counter()
    env.close = lambda: closed.append("second")  # type: ignore[method-assign]
    made = iter([Hinged(), env])
    scene = open_made(
        ForeignCode("gym:Mine"), lambda _: "Mine", lambda *_, **__: next(made), SceneRequest(agents=2)
    )
    scene.close()
    assert closed == ["second"]
    assert caplog.messages == ["gym:Mine: close() raised RuntimeError: no window"]


def spaced(observations: Any, actions: Any) -> Counter:
    env = Counter()
    env.observation_space, env.action_space = observations, actions
    return env


@pytest.mark.parametrize(
    ("observations", "actions", "complaint"),
    [
        (
            spaces.Box(0, 1, (1,)),
            spaces.Discrete(2),
            r"action space of agent 'agent' is Discrete\(2\); expected",
        ),
        (spaces.Box(0, 9, (1,)), spaces.Discrete(4), "observation space of agent 'agent' is Box"),
    ],
)
def test_copies_have_equal_spaces(observations: Any, actions: Any, complaint: str) -> None:
    made = iter([spaced(spaces.Box(0, 1, (1,)), spaces.Discrete(4)), spaced(observations, actions)])
    with pytest.raises(SceneError, match=f"^gym:Mine: copy 1: the {complaint}"):
        open_made(
            ForeignCode("gym:Mine"), lambda _: "Mine", lambda *_, **__: next(made), SceneRequest(agents=2)
        )


def counter(agents: int = 1, *, rendered: bool = False, **kwargs: Any) -> Scene:
    return open_gym(COUNTER, agents, kwargs, {}, rendered=rendered)


@pytest.mark.parametrize("limit", [3, 100])
def test_termination_wins_over_truncation_in_the_same_step(act, limit: int) -> None:
    scene = counter(end=3, limit=limit)
    scene.reset()
    for _ in range(3):
        steps = scene.step(act(BEHAVIOR, discrete=[[0]]))[BEHAVIOR]
    assert steps.terminated.tolist() == [True, False]
    assert not steps.truncated.any()


@pytest.mark.parametrize(
    ("trouble", "complaint"),
    [
        ("reset", r"gym:tests/Counter-v0: reset\(\) raised RuntimeError: no start$"),
        ("step", r"gym:tests/Counter-v0: step\(\) raised ValueError: lost a wheel$"),
        (
            "old reset",
            r"reset\(\) raised TypeError: expected 2 values, got one array; return observation, {}$",
        ),
        (
            "old step",
            r"step\(\) raised TypeError: expected 5 values to be returned \(observation, reward, terminated, "
            r"truncated, info\), got 4 of them$",
        ),
        ("no reward", r"gym:tests/Counter-v0: step\(\) raised TypeError: expected a number as the reward"),
        ("no render", r"^gym:tests/Counter-v0: it has no render\(\): there is no picture"),
        ("render", r"gym:tests/Counter-v0: render\(\) gave no picture but None; .* render_mode$"),
    ],
)
def test_environment_exceptions_become_one_line_with_their_place(act, trouble: str, complaint: str) -> None:
    scene = counter(trouble=trouble, rendered=True)
    with pytest.raises(SceneError, match=complaint):  # noqa: PT012 - each trouble comes at its own place
        scene.reset()
        scene.step(act(BEHAVIOR, discrete=[[0]]))
        scene.render()


def test_pictures_are_those_of_the_first_copy(act) -> None:
    scene = counter(2, rendered=True)
    scene.reset()
    scene.step(act(BEHAVIOR, discrete=[[0], [0]]))
    assert scene.render().tolist() == np.full((4, 6, 3), 1).tolist()
    assert scene.frame_s == 0.05
