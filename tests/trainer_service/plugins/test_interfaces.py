"""The interfaces that plugins are written for stay as they are, or ``PLUGIN_API`` counts up."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import pytest

from trainer_service.learning.algorithms.common.actor import Actor
from trainer_service.learning.algorithms.common.learner import Learner
from trainer_service.learning.rewards import RewardSource
from trainer_service.plugins import PLUGIN_API, AlgorithmPlugin, RewardSignalPlugin
from trainer_service.running.callbacks import METHODS, Callback
from trainer_service.running.metrics import SummaryWriter
from unity_bridge.simulators.scene import Scene, SceneOpener

VERSION_2: dict[type, list[str]] = {
    Learner: [
        "collected()",
        "load_replay_state(state)",
        "load_state_dict(state)",
        "load_weights(state)",
        "prepare(step)",
        "ready()",
        "record(trajectories)",
        "replay_state()",
        "state_dict()",
        "update(step)",
    ],
    Actor: [
        "act(request)",
        "env_actions(decisions)",
        "frozen(stream)",
        "load_state_dict(state, seed)",
        "load_weights(weights)",
        "policy_network()",
        "state_dict()",
        "update_normalizer(trajectories)",
        "weights()",
    ],
    RewardSource: [
        "learn(transitions, part)",
        "load_state_dict(state)",
        "load_weights(state)",
        "record(experience)",
        "rewards(transitions)",
        "state_dict()",
        "update_statistics(experience)",
    ],
    Scene: ["close()", "render()", "reset(seed)", "step(actions)"],
    SceneOpener: ["__call__(name, *, agents, academy, env_kwargs, rendered)"],
    SummaryWriter: [
        "close(end)",
        "open()",
        "truncate_after(behavior, step)",
        "write(summary)",
        "write_evaluation(summary)",
        "write_film(behavior, step, film)",
        "write_settings(behavior, text)",
    ],
    AlgorithmPlugin: ["__init__(settings, factory, api)", "load_factory()"],
    RewardSignalPlugin: ["__init__(settings, factory, api)", "load_factory()"],
}
"""Methods of each interface, with the names of their parameters."""

COMPLETE = (RewardSource, Scene, SceneOpener)
"""Protocols: a plugin has to write every method, so one more would break it. Bases may get more."""


def methods(kind: type) -> list[str]:
    """The methods that plugins write or call, as ``name(parameters)``."""
    own = {name: value for name, value in vars(kind).items() if inspect.isfunction(value)}
    written = "__call__" if kind is SceneOpener else "__init__" if hasattr(kind, "load_factory") else ""
    inherited = {"load_factory": kind.load_factory} if hasattr(kind, "load_factory") else {}
    return sorted(
        f"{name}({', '.join(parameters(value))})"
        for name, value in {**inherited, **own}.items()
        if name == written or not name.startswith("_")
    )


def parameters(function: object) -> Iterable[str]:
    star = False
    for each in list(inspect.signature(function).parameters.values())[1:]:  # type: ignore[arg-type]
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        yield each.name


@pytest.mark.parametrize("kind", VERSION_2, ids=lambda kind: kind.__name__)
def test_an_interface_is_that_of_its_version(kind: type) -> None:
    assert PLUGIN_API == 2
    found, known = set(methods(kind)), set(VERSION_2[kind])
    assert known <= found
    if kind in COMPLETE:
        assert found == known


def test_a_learner_has_an_actor_and_a_horizon() -> None:
    assert {"actor", "horizon"} <= set(Learner.__annotations__)


def test_methods_of_callbacks_are_those_of_their_version() -> None:
    assert sorted(METHODS) == [
        "on_checkpoint", "on_collection", "on_episode_end", "on_evaluation", "on_evaluation_step", "on_run_end",
        "on_run_start", "on_step", "on_update_end", "on_update_start", "shape_rewards",
    ]  # fmt: skip
    assert list(inspect.signature(Callback.on_step).parameters) == ["self", "run", "behavior", "step"]
