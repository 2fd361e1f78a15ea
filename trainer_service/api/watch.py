"""A local page on which a policy acts, live."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_service.api.environments import Environment, environment_for
from trainer_service.api.evaluate import EVALUATION_SEED
from trainer_service.api.trained_run import folder_of, one_thread, options_of
from trainer_service.config import PlayerName, load_run_options, parse_player
from trainer_service.config.players import EXPERT, RANDOM
from trainer_service.errors import UserError
from trainer_service.runs.folder import RunFolder


def watch(
    run: str | os.PathLike[str] | None = None,
    env: Any = None,
    *,
    policy: str = RANDOM,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
    deterministic: bool = True,
    checkpoint: str = "last",
    follow: bool = False,
    seed: int = EVALUATION_SEED,
    port: int = 0,
    browser: bool = True,
) -> None:
    """Shows a policy that acts on a page of this machine, as ``mlagents-style watch`` does. Returns after Ctrl-C.

    Args:
        run: as for ``evaluate``; None to watch an environment without a run.
        env, env_kwargs, env_args: as for ``evaluate``; where a run is given, its own environment if None.
        policy: without a run, ``"random"`` or ``"expert"`` (of a bundled scene).
        deterministic, checkpoint, seed: as for ``evaluate``.
        follow: whether to take every checkpoint that the run saves from now on.
        port: of the page; 0 for a free one.
        browser: whether to open the page in a browser.

    Raises:
        UserError: no such run, an environment that the policies do not fit, or a package of the extra ``watch`` is
            missing.
        SceneError: the environment failed.
    """
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    if run is None and policy not in (RANDOM, EXPERT):
        raise UserError(f"policy: expected random, expert or a run, got '{policy}'")
    watch_player(
        parse_player(policy) if run is None else folder_of(run),
        environment,
        deterministic=deterministic,
        checkpoint=checkpoint,
        follow=follow,
        seed=seed,
        port=port,
        browser=browser,
    )


def watch_player(
    player: RunFolder | PlayerName,
    environment: Environment,
    *,
    deterministic: bool = True,
    checkpoint: str = "last",
    follow: bool = False,
    seed: int = EVALUATION_SEED,
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serves the page for a run's policies, or another player's; see ``watch``.

    Args:
        player: the folder of a run, or ``random`` or ``expert``.
        environment: the environment to play in. If it has none, the policies play in the environment of the training.
        deterministic, checkpoint, follow, seed, port, browser: as for ``watch``. A run that is followed need not have
            saved yet: random actions are shown until it has.
        say: told the address.
    """
    from trainer_service.runs.status import read_lessons
    from trainer_service.watching.insight import insight_of
    from trainer_service.watching.playing import EndlessPlay, about
    from trainer_service.watching.server import serve
    from trainer_service.watching.shown_scene import ShownScene
    from trainer_service.watching.sources import RunSource, opened_scene, player_source
    from trainer_service.watching.stage import Stage

    run, run_id, options = None, "watch", load_run_options(None, {}).options
    lessons: Mapping[str, int] = {}
    if isinstance(player, RunFolder):
        run = RunSource(player.path, deterministic=deterministic, seed=seed)
        options, lessons, run_id = options_of(player), read_lessons(player.status), player.path.name
    elif environment.env_path is None:
        raise UserError("env: expected an environment to watch, got none")
    # A run of simulators that attached names none to open: then its curve is all there is to show.
    is_named = environment.env_path is not None or options.env_settings.env_path is not None
    command = environment.program(options, run_id) if is_named else None
    with one_thread(), opened_scene(command, options, lessons, seed) as scene:
        if run is None and scene is None:
            raise UserError(
                f"'{environment.env_path}' is a program that shows itself: expected a bundled environment"
            )
        others = parse_player(RANDOM) if isinstance(player, RunFolder) else player
        stage = Stage(follows=follow and run is not None)
        stage.about = about(scene, has_run=run is not None)
        acting = player_source(others, scene, seed) if run is None or follow else run.load(checkpoint)
        endless = EndlessPlay(stage, acting, run)
        insight = insight_of(endless.policy_of)
        shown = None if scene is None else ShownScene(scene, stage, seed, insight=insight)
        serve(stage, lambda: endless.play(shown, scene), port=port, browser=browser, say=say)
