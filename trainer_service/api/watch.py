"""A local page on which a policy acts, live."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer_service.api.environments import Environment, environment_for
from trainer_service.api.evaluate import EVALUATION_SEED
from trainer_service.api.trained_run import folder_of, one_thread, options_of
from trainer_service.config import PlayerName, load_run_options, parse_player
from trainer_service.config.players import EXPERT, RANDOM
from trainer_service.errors import UserError
from trainer_service.runs.folder import RunFolder

if TYPE_CHECKING:
    from trainer_service.watching.sources import Acting


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
        SceneError: the environment cannot be opened.
    """
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    if run is None:
        if policy not in (RANDOM, EXPERT):
            raise UserError(f"policy: expected random, expert or a run, got '{policy}'")
        watch_player(parse_player(policy), environment, seed=seed, port=port, browser=browser)
        return
    watch_player(
        folder_of(run),
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
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Serves the page for a run's policies, or another player's; see ``watch``.

    Args:
        player: the folder of a run, or ``random`` or ``expert``.
        environment: where to play; where it leaves that open, on what the run was trained with.
        deterministic, checkpoint, follow, seed, port, browser: as for ``watch``. A run that is followed need not have
            saved yet: random actions are shown until it has.
        say: told the address.
        until: ends the page once it returns true.
    """
    from trainer_service.runs.status import read_lessons
    from trainer_service.watching.insight import insight_of
    from trainer_service.watching.scene_player import ScenePlayer
    from trainer_service.watching.server import serve
    from trainer_service.watching.sources import RunSource, opened_scene, player_source
    from trainer_service.watching.stage import Stage

    run, lessons, run_id = None, {}, "watch"
    if isinstance(player, RunFolder):
        run = RunSource(player.path, deterministic=deterministic, seed=seed)
        options, lessons, run_id = options_of(player), read_lessons(player.status), player.path.name
    else:
        if environment.env_path is None:
            raise UserError("env: expected an environment to watch, got none")
        options = load_run_options(None, {}).options
    with one_thread(), opened_scene(environment, options, lessons, run_id, seed) as scene:
        if scene is None and run is None:
            raise UserError(f"'{environment.env_path}' is a program that shows itself; only its run can be watched")
        acting: Acting | None = None
        if run is not None and not follow:
            acting = run.load(checkpoint)
        elif scene is not None:
            acting = player_source(parse_player(RANDOM) if run is not None else player, scene, seed)  # type: ignore[arg-type]
        shown: list[Acting] = [] if acting is None else [acting]
        scene_player = None
        if scene is not None and acting is not None:
            insight = insight_of(lambda behavior_id: shown[-1].policy_of(behavior_id))
            scene_player = ScenePlayer(scene, acting.actors, insight, seed)

        def use(new: Acting) -> None:
            if scene_player is not None:
                scene_player.set_actors(new.actors)
            shown[:] = [new]

        stage = Stage(scene_player, run, name="" if acting is None else acting.name, use=use, follows=follow)
        serve(stage, port=port, browser=browser, say=say, until=until)
