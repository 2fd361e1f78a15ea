"""A person at the keyboard: games against policies (``evaluate --against human``), and recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer_service.commands.common.output import note, say
from trainer_service.commands.common.trained_run import one_thread
from trainer_service.commands.play.playing import Playing, play_games
from trainer_service.commands.watch.playing import about
from trainer_service.commands.watch.server import serve
from trainer_service.commands.watch.shown_scene import IdleActors, PersonActors, ShownScene
from trainer_service.commands.watch.sources import opened_scene
from trainer_service.commands.watch.stage import Stage
from trainer_service.config.players import PlayerName
from trainer_service.errors import UserError
from trainer_service.running.evaluation.match import sides_of
from trainer_service.running.evaluation.players import Player
from unity_bridge.simulators.registry import copies_of
from unity_bridge.simulators.schemes import scheme_of

if TYPE_CHECKING:
    from trainer_service.commands.play.match_results import Match
    from trainer_service.running.evaluation.evaluate import PolicyActors
    from trainer_service.running.evaluation.loop import EpisodeLoop
    from unity_bridge.simulators.scene import Scene

HUMAN = "human"
"""The name of a person as the opponent of ``evaluate --against``."""

KEYBOARD = "keyboard"
"""The name of a person as the policy of ``record-demo``."""


def play_person(playing: Playing, *, port: int, browser: bool) -> Match:
    """Games of the one player against the person at the page.

    Raises:
        UserError: no opponent, a program with a window of its own, or a page that was closed before the last game.
    """
    (player,) = playing.load()
    played: list[Match] = []
    with _stage(playing) as (stage, shown, scene, person):
        sides_of(scene.behaviors, playing.side, playing.options.teams)  # is said before anybody plays
        human = Player(PlayerName(HUMAN), own_actors=person)

        def games() -> None:
            played.append(play_games(playing, playing.loop_on(shown, "game"), player, human))

        stage.show({"policy": f"You against {player.name.text}: press Play to begin"})
        serve(stage, games, port=port, browser=browser, say=note)
    if not played:
        raise UserError("closed before the games were over: there is no result")
    return played[0]


def record_person(
    playing: Playing, record_on: Callable[[EpisodeLoop, PolicyActors], None], *, port: int, browser: bool
) -> None:
    """Records the person at the page, as ``record-demo --policy keyboard`` does.

    Raises:
        UserError: an environment of several agents, or a program that shows itself.
    """
    with _stage(playing) as (stage, shown, scene, person):
        agents = shown.num_waiting
        if agents > 1 or len(scene.behaviors) > 1:
            raise UserError(
                f"--policy {KEYBOARD}: a recording holds every agent of a behavior, and a person steers one: expected "
                f"an environment with one agent, got {agents} in {len(scene.behaviors)} behaviors; perhaps "
                "--env-args --agents 1"
            )
        stage.show({"policy": f"Recording {playing.episodes} episodes: press Play to begin"})
        serve(stage, lambda: record_on(playing.loop_on(shown), person), port=port, browser=browser, say=say)


@contextmanager
def _stage(playing: Playing) -> Iterator[tuple[Stage, ShownScene, Scene, PersonActors]]:
    """A page on which a person plays in one copy of an environment."""
    env, arguments = playing.environment.over(playing.options)
    assert env is not None
    alone = replace(playing.environment, env_path=env, env_args=(*arguments, *_one_copy(env, arguments)))
    with one_thread(), opened_scene(replace(playing, environment=alone).simulator()) as scene:
        if scene is None:
            raise UserError(f"'{env}' is a program of its own: a person plays in bundled environments only")
        stage = Stage(person_plays=True)
        stage.about = about(scene, env, has_run=False)
        shown = ShownScene(scene, stage, playing.seed)
        yield stage, shown, scene, PersonActors(IdleActors(), stage.person, shown, takes_side=True)


def _one_copy(env: str, given: Sequence[str]) -> list[str]:
    """The flag for a single copy of a bundled scene, unless the user says how many."""
    scheme = scheme_of(env)
    if scheme is None or scheme.kind != "scene" or {"--agents", "--copies"} & set(given):
        return []
    flag, _ = copies_of(env)
    return [flag, "1"]
