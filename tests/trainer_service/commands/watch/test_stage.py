"""The page's controls, on a scene of this process without a server."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from trainer_service.commands.watch.playing import EndlessPlay, about
from trainer_service.commands.watch.shown_scene import IdleActors, PersonActors, ShownScene
from trainer_service.commands.watch.sources import Acting, player_source
from trainer_service.commands.watch.stage import Stage, StageClosed
from trainer_service.config import parse_player
from trainer_service.errors import UserError
from trainer_service.running.evaluation.evaluate import PolicyActors
from trainer_service.running.evaluation.loop import EpisodeLoop
from trainer_service.running.evaluation.match import play_match
from trainer_service.running.evaluation.players import Player
from trainer_service.running.policy import random_policy
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene
from unity_bridge.simulators.scenes.array_scene import ArrayScene


def shown(scene: Scene, stage: Stage) -> ShownScene:
    stage.about = about(scene, "sim:basic", has_run=False)
    return ShownScene(scene, stage, seed=1)


def play(stage: Stage, endless: EndlessPlay, scene: Scene) -> threading.Thread:
    thread = threading.Thread(
        target=stage.run, args=(lambda: endless.play(shown(scene, stage), scene),), daemon=True
    )
    thread.start()
    return thread


def wait_for(stage: Stage, condition: Any) -> Mapping[str, Any]:
    for _ in range(2000):
        frame = stage.frame
        if condition(frame):
            return frame
        threading.Event().wait(0.005)
    raise AssertionError(f"never came: {stage.frame}")


def test_a_paused_scene_goes_on_by_single_steps() -> None:
    scene, stage = open_scene("sim:basic", rendered=True), Stage(person_plays=True)
    thread = play(stage, EndlessPlay(stage, player_source(parse_player("expert"), scene, 1), None), scene)
    for expected in (1, 2, 3):
        stage.command({"do": "step"})
        frame = wait_for(stage, lambda frame, expected=expected: frame.get("step") == expected)
        assert frame["paused"]
        assert frame["picture"]
    stage.close()
    thread.join(10)
    assert stage.frame["step"] == 3
    assert stage.frame["over"]


def test_the_returns_are_those_of_the_watched_agent() -> None:
    """The expert of Basic walks seven cells to the right: six steps of −0.01 and the last of 1 − 0.01."""
    scene, stage = open_scene("sim:basic", agents=3, rendered=True), Stage()
    stage.command({"do": "speed", "value": 16.0})
    thread = play(stage, EndlessPlay(stage, player_source(parse_player("expert"), scene, 1), None), scene)
    frame = wait_for(stage, lambda frame: len(frame.get("returns", ())) >= 2)
    stage.close()
    thread.join(10)
    assert frame["returns"][0] == pytest.approx(0.93)


def person_in(scene: Scene, stage: Stage) -> tuple[PersonActors, Any]:
    """A person who plays in a scene, and the tick that waits for an answer."""
    view = shown(scene, stage)
    actors = PersonActors(IdleActors(), stage.person, view)
    (tick,) = _step(view, stage)
    actors.declare(tick)
    return actors, tick


def test_a_person_moves_the_watched_agent_only() -> None:
    scene, stage = open_scene("sim:basic", agents=2, rendered=True), Stage(person_plays=True)
    actors, tick = person_in(scene, stage)
    stage.command({"do": "input", "continuous": [], "discrete": [2]})
    assert actors.act(tick)["Basic?team=0"].discrete.tolist() == [[2], [0]]
    stage.command({"do": "control", "value": False})
    assert actors.act(tick)["Basic?team=0"].discrete.tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"continuous": [0.5, -2.0, 9.0], "discrete": []}, [0.5, -1.0]),
        ({"continuous": [0.5], "discrete": [7]}, [0.5, 0.0]),
        ({"continuous": [], "discrete": []}, [0.0, 0.0]),
    ],
)
def test_a_person_s_action_is_brought_into_range(given: dict[str, Any], expected: list[float]) -> None:
    scene, stage = open_scene("sim:3dball", agents=1, rendered=True), Stage(person_plays=True)
    actors, tick = person_in(scene, stage)
    stage.command({"do": "input", **given})
    assert actors.act(tick)["3DBall?team=0"].continuous.tolist() == [expected]


@pytest.mark.parametrize(
    ("wanted", "expected"), [([1, 2], [0, 2]), ([2, 0], [2, 1]), ([-1, 3], [0, 1]), ([], [0, 1])]
)
def test_a_person_s_choice_that_is_masked_or_none_is_the_first_allowed(
    wanted: list[int], expected: list[int]
) -> None:
    scene, stage = open_scene("sim:hybrid", agents=1, rendered=True), Stage(person_plays=True)
    actors, tick = person_in(scene, stage)
    ((behavior, batch),) = tick.steps.items()
    batch.allowed_actions[0] = [True, False, True, False, True, True]
    stage.command({"do": "input", "continuous": [], "discrete": wanted})
    assert actors.act(tick)[behavior].discrete.tolist() == [expected]


def play_episodes(view: ShownScene, scene: Any, stage: Stage, count: int) -> None:
    ended = stage.frame.get("episode", 1) + count
    while stage.frame.get("episode", 1) < ended:
        _step(view, stage)
        view.reply(0, scene.expert())


def test_episodes_are_told_apart_by_their_players() -> None:
    """Those of the shown policy alone are its own: not those of a person, of a policy before, or of two in turn."""
    scene, stage = open_scene("sim:basic", agents=1, rendered=True), Stage()
    stage.show({"policy": "first"})
    view = shown(scene, stage)
    play_episodes(view, scene, stage, 2)
    assert stage.frame["players"] == ["policy", "policy"]
    stage.show({"policy": "second"})
    play_episodes(view, scene, stage, 1)
    assert stage.frame["players"] == ["others", "others", "policy"]
    stage.command({"do": "control", "value": True})
    play_episodes(view, scene, stage, 1)
    _step(view, stage)
    view.reply(0, scene.expert())
    stage.command({"do": "control", "value": False})
    play_episodes(view, scene, stage, 1)
    assert stage.frame["players"] == ["others", "others", "policy", "person", "others"]
    assert len(stage.frame["returns"]) == 5


def test_the_picture_marks_the_watched_agent() -> None:
    scene, stage = open_scene("sim:switch2", options={"copies": 2}, rendered=True), Stage()
    view = shown(scene, stage)
    assert stage.about.marks
    assert isinstance(scene, ArrayScene)
    watched = set()
    for _ in range(14):
        _step(view, stage)
        view.reply(0, scene.expert())  # type: ignore[attr-defined]
        watched.add(scene.marked)
    assert {0, 1} <= watched, "one agent is home before the other, which is watched then"


class Fast(Stage):
    """Steps that follow each other faster than pictures can be drawn."""

    draws = False  # type: ignore[assignment]


@pytest.mark.parametrize(("stage", "looks"), [(Stage(), 5), (Fast(), 0)])
def test_figures_are_those_of_shown_steps_alone(stage: Stage, looks: int) -> None:
    scene, looked = open_scene("sim:basic", agents=1, rendered=True), []
    view = ShownScene(scene, stage, 1, insight=lambda behavior_id, batch, row: {"value": looked.append(row)})
    for _ in range(5):
        _step(view, stage)
        view.reply(0, scene.expert())  # type: ignore[attr-defined]
    assert len(looked) == looks
    assert bool(stage.frame.get("picture")) == bool(looks)


def _step(view: ShownScene, stage: Stage) -> Any:
    stage.command({"do": "step"})
    return view.receive(0.0)


def test_a_person_plays_either_side_of_games() -> None:
    scene, stage = open_scene("sim:duel", options={"copies": 1}, rendered=True), Stage(person_plays=True)
    view = shown(scene, stage)
    sides: list[str] = []
    watch = view.watch

    def heard(behavior_id: str) -> None:
        sides.append(behavior_id)
        watch(behavior_id)

    view.watch = heard  # type: ignore[method-assign]
    person = Player(
        parse_player("person"), own_actors=PersonActors(IdleActors(), stage.person, view, takes_side=True)
    )
    stage.command({"do": "speed", "value": 16.0})
    stage.command({"do": "play"})
    games = play_match(EpisodeLoop(view), Player(parse_player("random")), person, games=2)
    assert [len(each.results) for each in games.values()] == [1, 1]
    assert sides == ["Duel?team=1", "Duel?team=0"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"do": "fly"},
        {"do": "speed", "value": 3.3},
        {"do": "checkpoint", "value": "best"},
        {"do": "follow", "value": True},
    ],
)
def test_a_command_that_is_none_is_refused(given: dict[str, Any]) -> None:
    stage = Stage()
    with pytest.raises(ValueError, match=r"no such command"):
        stage.command(given)


def test_a_failure_is_shown_and_raised() -> None:
    stage = Stage()

    def fail() -> None:
        raise UserError("the policy does not fit")

    with pytest.raises(UserError):
        stage.run(fail)
    assert stage.frame["error"] == "the policy does not fit"


def test_policies_that_do_not_fit_are_said_on_the_page() -> None:
    scene, other = open_scene("sim:basic", rendered=True), open_scene("sim:3dball")
    ((name, spec),) = other.behaviors.items()
    policy = random_policy(name, spec, seed=1)
    acting = Acting(PolicyActors({"3DBall": policy}, deterministic=True), {}, "another task")
    stage = Stage()
    with pytest.raises(UserError, match="no policy for behavior 'Basic'"):
        stage.run(lambda: EndlessPlay(stage, acting, None).play(shown(scene, stage), scene))


def test_a_paused_page_shows_the_scene_before_its_first_step() -> None:
    scene, stage = open_scene("sim:basic", agents=1, rendered=True), Stage(person_plays=True)
    view = shown(scene, stage)
    stage.close()
    with pytest.raises(StageClosed):
        view.receive(0.0)
    assert stage.frame["picture"]
