"""Environments of a program on their way into another process."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import cloudpickle
import gymnasium
import numpy as np
import pytest
from notebook_cells import run_cell

from unity_bridge.errors import LaunchError
from unity_bridge.programs.executables import resolve_program
from unity_bridge.programs.program_environment import program_environment
from unity_bridge.simulators.command import main
from unity_bridge.simulators.objects import name_of, opener_of
from unity_bridge.simulators.scene import Scene, SceneError, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec

CELL = run_cell()
Walk, Pair = CELL["Walk"], CELL["Pair"]


def opened(given: Any, kwargs: dict[str, Any] | None = None, **settings: Any) -> Scene:
    """The scene as the other process opens it."""
    sent = program_environment(given, kwargs)
    return opener_of(pickle.loads(sent.content))(sent.env, **settings)


@pytest.mark.parametrize(
    "given", [Walk, Walk(), lambda: Walk(goal=2), gymnasium.wrappers.TimeLimit(Walk(), 5)]
)
def test_objects_classes_and_functions_are_one_behavior(given: Any) -> None:
    scene = opened(given)
    assert list(scene.behaviors) == ["Walk?team=0"]
    assert [sensor.name for sensor in scene.behaviors["Walk?team=0"].observation_specs] == ["clock", "place"]
    assert len(scene.reset(1)["Walk?team=0"].agent_ids) == 1


def test_arguments_reach_what_makes_it() -> None:
    batch = opened(Walk, {"goal": -2.0}).reset(1)["Walk?team=0"]
    assert batch.observations[1][0, 1] == -2.0


def test_copies_are_apart_and_begin_as_the_object_is() -> None:
    env = Walk(goal=1.5)
    scene = opened(env, options={"copies": 3})
    places = scene.reset(1)["Walk?team=0"].observations[1]
    assert len({float(place) for place in places[:, 0]}) == 3
    np.testing.assert_array_equal(places[:, 1], 1.5)


@pytest.mark.parametrize("wrapped", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 5)])
def test_one_environment_for_all_copies_is_refused(wrapped: Any) -> None:
    env = Walk()
    given = program_environment(lambda: wrapped(env))
    same = "function: the function returned the same environment twice; make a new one each time$"
    with pytest.raises(SceneError, match=same):
        given.open("function", options={"copies": 2})
    scene = given.open("function")  # the failure above left nothing behind
    with pytest.raises(SceneError, match=same):
        given.open("function")  # for another simulator, or an evaluation
    scene.close()
    given.open("function").close()


def test_one_environment_within_a_vector_environment_is_refused() -> None:
    env = Walk()
    given = program_environment(lambda: gymnasium.vector.SyncVectorEnv([lambda: env] * 2))
    with pytest.raises(SceneError, match="returned the same environment twice"):
        given.open("function")


def test_one_scene_for_two_simulators_is_refused() -> None:
    own = OwnScene()
    given = program_environment(lambda: own)
    scene = given.open("function")
    with pytest.raises(SceneError, match="returned the same environment twice"):
        given.open("function")
    scene.close()


class OwnScene:
    behaviors: ClassVar = {"A": BehaviorSpec((vector_sensor("place", 1),), ActionSpec(1))}

    def reset(self, seed: int | None = None) -> Any: ...

    def step(self, actions: Any) -> Any: ...


@pytest.fixture
def unheard_of() -> Iterator[str]:
    """The id of an environment that only this process knows."""
    gymnasium.register("cells/Walk-v7", entry_point=Walk, max_episode_steps=4)
    yield "cells/Walk-v7"
    gymnasium.registry.pop("cells/Walk-v7", None)


def test_an_object_that_forgets_its_spec_keeps_its_name_and_can_be_filmed(unheard_of: str) -> None:
    class Forgetful(Walk, gymnasium.utils.EzPickle):
        def __init__(self, render_mode: str | None = None) -> None:
            gymnasium.utils.EzPickle.__init__(self, render_mode)  # it is copied by its arguments alone
            Walk.__init__(self, render_mode=render_mode)

    gymnasium.registry[unheard_of].entry_point = Forgetful
    env = gymnasium.make(unheard_of)
    assert pickle.loads(cloudpickle.dumps(env)).spec is None
    scene = opened(env, rendered=True)
    scene.reset(1)
    assert list(scene.behaviors) == ["Walk-v7?team=0"]
    assert scene.render().shape == (32, 32, 3)


def test_ids_of_this_process_are_known_in_the_other(unheard_of: str) -> None:
    sent = program_environment(lambda: gymnasium.make(unheard_of))
    content = sent.content
    del gymnasium.registry[unheard_of]
    scene = opener_of(pickle.loads(content))(sent.env)
    assert list(scene.behaviors) == ["Walk-v7?team=0"]


def test_what_cannot_be_sent_is_named_with_a_way_out() -> None:
    env = Walk()
    env.lock = threading.Lock()
    with pytest.raises(LaunchError, match=r"TypeError: cannot pickle '_thread.lock' object; pass a function"):
        _ = program_environment(env).content
    with pytest.raises(
        SceneError, match=r"it cannot be copied: TypeError: cannot pickle .*; pass a function"
    ):
        program_environment(env).open("python:Walk")
    with pytest.raises(
        LaunchError, match=r"env_kwargs: expected none for an environment that is made already"
    ):
        program_environment(Walk(), {"goal": 1.0})


def test_what_a_function_returns_must_be_an_environment() -> None:
    with pytest.raises(SceneError, match=r"python:lambda: expected a gymnasium\.Env .* got 5"):
        opened(lambda: 5)
    with pytest.raises(SceneError, match="python:Walk: it has no --steps"):
        opened(Walk, options={"steps": 2})


def test_no_command_line_leads_to_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LaunchError, match="'python:Walk': it was an object of a Python program"):
        resolve_program("python:Walk")
    assert main(["python:Walk"]) == 2
    assert "expected sim:NAME" in capsys.readouterr().err


def test_a_spec_without_an_id_names_no_behavior() -> None:
    assert (
        name_of(SimpleNamespace(possible_agents=["a"], spec={"size": 3}, metadata={"name": "arena_v0"}))
        == "arena_v0"
    )
