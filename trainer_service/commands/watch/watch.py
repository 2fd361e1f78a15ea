"""A local page on which a policy acts, live."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_service.commands.common.environments import environment_for
from trainer_service.commands.common.flags import EVALUATION_SEED
from trainer_service.commands.common.trained_run import (
    folder_of,
    one_thread,
    options_of,
    simulator_for,
)
from trainer_service.commands.watch.insight import insight_of
from trainer_service.commands.watch.playing import EndlessPlay, about
from trainer_service.commands.watch.server import serve
from trainer_service.commands.watch.shown_scene import ShownScene
from trainer_service.commands.watch.sources import RunSource, opened_scene, player_source
from trainer_service.commands.watch.stage import Stage
from trainer_service.config import parse_player
from trainer_service.config.players import EXPERT, RANDOM
from trainer_service.errors import UserError


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
    say: Callable[[str], None] = print,
) -> None:
    """Shows a policy that acts on a page of this machine, as ``mlagents-style watch`` does. Returns after Ctrl-C.

    Args:
        run: as for ``evaluate``; None to watch an environment without a run.
        env, env_kwargs, env_args: as for ``evaluate``; where a run is given, its own environment if None.
        policy: without a run, ``"random"`` or ``"expert"`` (of a bundled scene).
        deterministic, checkpoint, seed: as for ``evaluate``.
        follow: whether to take every checkpoint that the run saves from now on. The run need not have saved yet: random
            actions are shown until it has.
        port: of the page; 0 for a free one.
        browser: whether to open the page in a browser.
        say: told the address of the page.

    Raises:
        UserError: no such run, an environment that the policies do not fit, or a package of the extra ``watch`` is
            missing.
        SceneError: the environment failed.
    """
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    folder = None if run is None else folder_of(run)
    source = None if folder is None else RunSource(folder.path, deterministic=deterministic, seed=seed)
    if run is None and policy not in (RANDOM, EXPERT):
        raise UserError(f"policy: expected random, expert or a run, got '{policy}'")
    if run is None and environment.env_path is None:
        raise UserError("env: expected an environment to watch, got none")
    # A run of simulators that attached names none to open: then its curve is all there is to show.
    env_path, _ = environment.over(options_of(folder))
    simulator = None if env_path is None else simulator_for(environment, folder, seed=seed)
    with one_thread(), opened_scene(simulator) as scene:
        if source is None and scene is None:
            raise UserError(f"'{env_path}' is a program that shows itself: expected a bundled environment")
        stage = Stage(follows=follow and source is not None)
        stage.about = about(scene, env_path, has_run=source is not None)
        if source is None or follow:
            acting = player_source(parse_player(policy if source is None else RANDOM), scene, seed)
        else:
            acting = source.load(checkpoint)
        endless = EndlessPlay(stage, acting, source)
        insight = insight_of(endless.policy_of)
        shown = None if scene is None else ShownScene(scene, stage, seed, insight=insight)
        serve(stage, lambda: endless.play(shown, scene), port=port, browser=browser, say=say)
