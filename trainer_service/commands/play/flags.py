"""The play that the flags of a command ask for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainer_service.commands.common.environments import environment_for
from trainer_service.commands.common.output import note
from trainer_service.commands.play.films import FilmOptions, filming
from trainer_service.commands.play.playing import Playing


@contextmanager
def playing_of(parsed: argparse.Namespace, **more: Any) -> Iterator[Playing]:
    """A context for a play: its log goes to standard error, and at its end the film is there.

    more: fields of ``Playing`` besides those of the flags, or instead of them.

    Raises UserError at the end where the film was not written.
    """
    from trainer_service.running.metrics.console import Console

    film = None
    if getattr(parsed, "record", None) is not None:
        film = FilmOptions(parsed.record, parsed.record_episodes, parsed.record_seconds)
    given: dict[str, Any] = {
        "environment": environment_for(parsed.env, env_args=parsed.env_args),
        "episodes": parsed.episodes,
        "max_episode_steps": parsed.max_episode_steps,
        "deterministic": not parsed.stochastic,
        "seed": parsed.seed,
        "device": parsed.torch_device,
        "results_dir": parsed.results_dir,
        "film": film,
    }
    # Everything on the way goes to standard error: standard output is for the result.
    with filming(film), Console(tty=False, stream=sys.stderr):
        yield Playing(**(given | more))
    if film is not None:
        note(f"Recorded {film.path}")
