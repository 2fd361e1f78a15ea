"""The page's controls, on a scene of this process without a server."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from trainer_service.commands.watch.insight import insight_of
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


def shown(scene: Scene, stage: Stage) -> ShownScene:
    stage.about = about(scene, has_run=False)
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


def test_a_person_moves_the_watched_agent_only() -> None:
    scene, stage = open_scene("sim:basic", agents=2, rendered=True), Stage(person_plays=True)
    view = shown(scene, stage)
    actors = PersonActors(IdleActors(), stage.person, view)
    (tick,) = _step(view, stage)
    actors.declare(tick)
    stage.command({"do": "input", "pressed": ["ArrowRight"], "axes": []})
    assert actors.act(tick)["Basic?team=0"].discrete.tolist() == [[2], [0]]
    stage.command({"do": "control", "value": False})
    assert actors.act(tick)["Basic?team=0"].discrete.tolist() == [[0], [0]]


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


def test_a_closed_page_ends_what_plays() -> None:
    stage = Stage()
    stage.close()
    with pytest.raises(StageClosed):
        stage.wait(1.0)


def test_a_failure_is_shown_and_raised() -> None:
    stage = Stage()

    def fail() -> None:
        raise UserError("the policy does not fit")

    with pytest.raises(UserError):
        stage.run(fail)
    assert stage.frame["error"] == "the policy does not fit"


def test_figures_on_a_decision_are_frequencies_of_draws() -> None:
    scene = open_scene("sim:basic")
    ((name, spec),) = scene.behaviors.items()
    policy = random_policy("Basic", spec, seed=1)
    batch = scene.reset(1)[name]
    figures = insight_of(lambda behavior_id: policy)(name, batch, 0)
    (branch,) = figures["probabilities"]
    assert sum(branch) == pytest.approx(1.0)
    assert all(0.2 < each < 0.47 for each in branch)
    assert figures["value"] is None


def test_policies_that_do_not_fit_are_said_on_the_page() -> None:
    scene, other = open_scene("sim:basic", rendered=True), open_scene("sim:3dball")
    ((name, spec),) = other.behaviors.items()
    policy = random_policy(name, spec, seed=1)
    acting = Acting(PolicyActors({"3DBall": policy}, deterministic=True), {}, "another task")
    stage = Stage()
    with pytest.raises(UserError, match="no policy for behavior 'Basic'"):
        stage.run(lambda: EndlessPlay(stage, acting, None).play(shown(scene, stage), scene))
