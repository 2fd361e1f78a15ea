from __future__ import annotations

from typing import Any

import pytest
from foreign_scenes import open_gym

from unity_bridge.simulators.foreign.lookup.wrappers import parse_wrapper
from unity_bridge.simulators.scene import Scene, SceneError

POLE = "CartPole-v1"


def wrapped(*wrappers: str, name: str = POLE) -> Scene:
    return open_gym(name, 1, {}, {"wrap": list(wrappers)}, rendered=False)


def shape(scene: Scene) -> tuple[int, ...]:
    [spec] = scene.behaviors.values()
    return spec.observation_specs[0].shape


@pytest.mark.parametrize(
    ("text", "name", "positional", "named"),
    [
        ("FlattenObservation", "FlattenObservation", (), {}),
        ("FrameStackObservation:4", "FrameStackObservation", (4,), {}),
        ("ResizeObservation:(84, 84)", "ResizeObservation", ((84, 84),), {}),
        ("ResizeObservation:shape=[84,84]", "ResizeObservation", (), {"shape": (84, 84)}),
        (
            "AtariPreprocessing:frame_skip=4,grayscale_obs=true,noop_max=-1",
            "AtariPreprocessing",
            (),
            {"frame_skip": 4, "grayscale_obs": True, "noop_max": -1},
        ),
        (
            "FrameStackObservation:4,padding_type=zero",
            "FrameStackObservation",
            (4,),
            {"padding_type": "zero"},
        ),
        ("my.tools:squeeze", "my.tools:squeeze", (), {}),
        ("tools:squeeze:by='a:b',to=None", "tools:squeeze", (), {"by": "a:b", "to": None}),
    ],
)
def test_a_wrapper_is_read_like_a_call(text: str, name: str, positional: Any, named: Any) -> None:
    read = parse_wrapper("gym:X", text)
    assert (read.name, read.positional, read.named) == (name, positional, named)


def test_the_last_wrapper_is_outermost() -> None:
    assert shape(wrapped("FrameStackObservation:4", "FlattenObservation", "FrameStackObservation:2")) == (32,)


def test_wrappers_change_what_an_agent_lives_through(act) -> None:
    scene = wrapped("gym_lab:double", "TimeLimit:2", name="gym_lab:lap")
    scene.reset(2000)
    steps = [scene.step(act("lap?team=0", discrete=[[choice]]))["lap?team=0"] for choice in (1, 2)]
    assert [step.rewards[0] for step in steps] == [12, 14]
    assert steps[1].truncated[0]


@pytest.mark.parametrize(
    ("wrapper", "complaint"),
    [
        (
            "FrameStack:4",
            r"no wrapper 'FrameStack' \(did you mean FrameStackObservation\?\); .* module:function",
        ),
        ("GrayScaleObservation", r"did you mean GrayscaleObservation\?"),
        ("Xyzzy", "Gymnasium has no wrapper 'Xyzzy'; expected"),
        ("FrameStackObservation:4)", r"expected arguments such as 4 or .*, got '4\)'"),
        ("FrameStackObservation:open('x')", "expected arguments such as 4"),
        ("FrameStackObservation:*[4]", "expected arguments such as 4"),
        (
            "TimeLimit:max_steps=3",
            r"no argument 'max_steps' \(did you mean max_episode_steps\?\); it takes max_episode_steps$",
        ),
        ("TimeLimit:-3", "it raised (Value|Assertion)Error: Expect the `max_episode_steps` to be positive"),
        ("TransformReward", "missing a required argument: 'func'; it takes func"),
        ("NormalizeObservation", r"stay behind .* write 'network_settings: \{normalize: true\}'"),
        ("NormalizeReward", r"write 'reward_signals: \{extrinsic: \{normalize_rewards: true\}\}'"),
        ("gym_lab:nothing", "expected a gymnasium.Env to be returned, got None"),
        ("gym_lab:triple", "gym_lab has no function or class 'triple'"),
        ("no_such_lab:double", "there is no module no_such_lab"),
    ],
)
def test_what_is_wrong_with_a_wrapper_is_named(wrapper: str, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint) as failure:
        wrapped(wrapper)
    assert str(failure.value).startswith(f"gym:{POLE}: --wrap {wrapper}: ")
