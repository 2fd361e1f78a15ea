"""Scenes that users write: omitted masks, optional members, and one line for each typical mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.codec.step_encoder import encode_steps
from unity_bridge.simulators.own_scene import own_scene
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import SceneError, concatenate, step_batch, vector_sensor
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

SPEC = BehaviorSpec((vector_sensor("place", 1),), ActionSpec(discrete_branches=(3, 2)))
ACTIONS = {"Walker": ActionBatch(np.zeros((2, 0), np.float32), np.zeros((2, 2), np.int32))}


def batch(**changed: Any) -> StepBatch:
    """Two agents that wait for an action."""
    columns = {
        "observations": [np.zeros((2, 1), np.float32)],
        "rewards": np.zeros(2, np.float32),
        "agent_ids": np.arange(2),
    }
    return step_batch(**{**columns, **changed})


def ends(agent: int) -> StepBatch:
    """The last row of an agent."""
    return step_batch(
        [np.zeros((1, 1), np.float32)],
        np.ones(1, np.float32),
        agent_ids=np.array([agent]),
        terminated=np.ones(1, np.bool_),
    )


class Walkers:
    """A scene that returns what it is given."""

    def __init__(self, first: Any = None, then: Any = None) -> None:
        self.behaviors: Any = {"Walker": SPEC}
        self._first = {"Walker": batch()} if first is None else first
        self._then = {"Walker": batch()} if then is None else then

    def reset(self, seed: int | None = None) -> Any:
        return self._first

    def step(self, actions: Mapping[str, ActionBatch]) -> Any:
        return self._then


def checked(scene: Any) -> Any:
    return own_scene(ForeignCode("mine.py:Walkers"), scene)


def test_a_scene_needs_no_masks_no_picture_and_no_end() -> None:
    scene = checked(Walkers())
    assert list(scene.reset(1)) == ["Walker"]
    assert len(scene.step(ACTIONS)["Walker"]) == 2
    assert scene.copies == 1
    scene.close()
    with pytest.raises(SceneError, match=r"^mine.py:Walkers: Walkers has no method render\(\)"):
        scene.render()


def test_an_omitted_mask_allows_everything_on_both_ways_to_the_trainer() -> None:
    rows = concatenate(ends(0), batch())
    for read in (
        StepDecoder("Walker", SPEC).adopt(rows),
        StepDecoder("Walker", SPEC).decode(decoded_rows(rows)),
    ):
        assert read.allowed_actions.shape == (3, 5)
        assert read.allowed_actions.all()


def decoded_rows(rows: StepBatch) -> list[bytes]:
    from unity_bridge.wire.unity_rl_output_pb2 import UnityRLOutputProto

    message = UnityRLOutputProto.ListAgentInfoProto.FromString(encode_steps(rows, SPEC))
    return [each.SerializeToString() for each in message.value]


def again(scene: Any) -> None:
    """Two messages of a scene."""
    checking = checked(scene)
    checking.reset()
    checking.step(ACTIONS)


NAN = np.array([0, np.nan], np.float32)


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        (
            lambda: Walkers({"Walker": batch(observations=[np.zeros(2, np.float32)])}),
            r"reset\(\): behavior 'Walker': sensor 'place': expected shape \(2, 1\), got \(2,\)",
        ),
        (
            lambda: Walkers({"Walker": batch(observations=[])}),
            r"expected an array for each sensor \('place'\), got 0",
        ),
        (
            lambda: Walkers({"Walker": batch(observations=[[[0.0], [1.0]]])}),
            r"sensor 'place': expected an array of shape \(2, 1\), got list",
        ),
        (
            lambda: Walkers({"Walker": batch(observations=[np.zeros((2, 1))])}),
            r"sensor 'place': expected float32, got float64; .astype\(np.float32\) converts it",
        ),
        (
            lambda: Walkers({"Walker": batch(agent_ids=np.arange(2.0))}),
            "agent_ids: expected int64, got float64",
        ),
        (
            lambda: Walkers({"Walker": batch(agent_ids=np.arange(2) - 1)}),
            "agent_ids: expected numbers from 0 to 2147483647, got -1",
        ),
        (
            lambda: Walkers({"Walker": batch(group_ids=np.full(2, -1))}),
            "group_ids: expected numbers from 0 to 2147483647; 0 is no group, got -1",
        ),
        (
            lambda: Walkers({"Walker": batch(allowed_actions=np.ones((2, 3), np.bool_))}),
            r"allowed_actions: expected shape \(2, 5\), got \(2, 3\)",
        ),
        (
            lambda: Walkers(then={"Walker": batch(rewards=NAN)}),
            r"step\(\): behavior 'Walker': rewards of agent 1: expected a finite number, got nan",
        ),
        (
            lambda: Walkers({"Walker": batch(agent_ids=np.zeros(2, np.int64))}),
            "agent 0 waits for an action in two rows of one message; each agent needs an id of its own, "
            "or its last row needs terminated or truncated$",
        ),
        (
            lambda: Walkers({"Walker": ends(1)}),
            "agent 1 ends, but it has no episode: it ended before, or never began",
        ),
        (
            lambda: Walkers({"Runner": batch()}),
            "behavior 'Runner' is not in behaviors, which has 'Walker'",
        ),
        (lambda: Walkers({"Walker": None}), "expected a StepBatch, as step_batch\\(\\) makes one, got NoneType"),
        (lambda: Walkers(batch()), r"reset\(\): expected a dictionary of StepBatch by behavior, got StepBatch"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_one_line(scene: Callable[[], Any], message: str) -> None:
    with pytest.raises(SceneError, match=f"^mine.py:Walkers: .*{message}") as error:
        again(scene())
    assert "\n" not in str(error.value)


def test_an_agent_that_ended_cannot_end_again() -> None:
    scene = checked(Walkers(then={"Walker": ends(1)}))
    scene.reset()
    scene.step(ACTIONS)
    with pytest.raises(SceneError, match=r"step\(\): behavior 'Walker': agent 1 ends, but it has no episode"):
        scene.step(ACTIONS)
    scene.reset()
    scene.step(ACTIONS)


def test_what_a_scene_lacks_is_named_when_it_is_opened() -> None:
    class Lame:
        behaviors = {"Walker": SPEC}  # noqa: RUF012

        def reset(self, seed: int | None = None) -> Any:
            return {}

    with pytest.raises(SceneError, match=r"Lame has no method step\(actions\)"):
        checked(Lame())
    scene = Walkers()
    for wrong in ({}, [SPEC], {"Walker": 3}):
        scene.behaviors = wrong
        with pytest.raises(SceneError, match="behaviors: expected a"):
            checked(scene)


FILE = """
from dataclasses import dataclass

import beside

@dataclass
class Mine(beside.Walkers):
    agents: int = 2

    def __post_init__(self):
        super().__init__()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "beside.py").write_text(f"import sys\nsys.path += [{str(Path(__file__).parent)!r}]\n"
                                        "from test_own_scene import Walkers\n")  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    return tmp_path


def test_a_class_of_a_file_is_a_scene(folder: Path) -> None:
    for env in ("mine.py:Mine", "./mine.py:Mine", f"{folder}/mine.py:Mine"):
        scene = open_scene(env, env_kwargs={"agents": 3})
        assert list(scene.reset(1)) == ["Walker"]


@pytest.mark.parametrize(
    ("env", "given", "message"),
    [
        ("mine.py:Min", {}, r"^mine.py:Min: mine.py has no class or function Min \(did you mean 'Mine'\?\)$"),
        ("other.py:Mine", {}, "^other.py:Mine: there is no file .*other.py$"),
        ("mine.py:Mine", {"agents": 3}, "--agents is for environments of other libraries; .*--env-kwargs JSON$"),
        ("mine.py:Mine", {"options": {"copies": 3}}, "--copies is for environments of other libraries"),
        ("mine.py:Mine", {"env_kwargs": {"walkers": 3}}, "raised TypeError: .*unexpected keyword argument 'walkers'"),
        ("broken.py:Mine", {}, "^broken.py:Mine: running broken.py raised ZeroDivisionError: division by zero$"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_named(folder: Path, env: str, given: Any, message: str) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(SceneError, match=message):
        open_scene(env, **given)


def test_a_gymnasium_class_of_a_file_is_opened_as_by_gym(folder: Path) -> None:
    pytest.importorskip("gymnasium")
    (folder / "pole.py").write_text(
        "import gymnasium\n\ndef pole():\n    return gymnasium.make('CartPole-v1')\n"
    )
    scene = open_scene("pole.py:pole", agents=3)
    ((name, rows),) = scene.reset(1).items()
    assert (name.partition("?")[0], len(rows)) == ("CartPole-v1", 3)
    scene.close()
