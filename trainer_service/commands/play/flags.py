"""The play that the flags of a command ask for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from trainer_service.commands.common import flags
from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.environments import environment_for
from trainer_service.commands.common.output import note
from trainer_service.commands.play.films import FilmOptions, filming
from trainer_service.commands.play.playing import Playing
from trainer_service.running.evaluation.loop import PlayStopped
from trainer_service.running.metrics.console import Console
from trainer_service.running.training.stop_signals import StopSignals


@contextmanager
def stops_play() -> Iterator[Callable[[], None]]:
    """A context in which Ctrl-C ends a play, and not the process: its value is the play's ``check_stop``."""
    with StopSignals(saves=False) as signals:

        def check_stop() -> None:
            if signals.requested:
                raise PlayStopped

        yield check_stop


@contextmanager
def playing_of(
    env: str | None,
    *,
    max_episode_steps: flags.MaxEpisodeSteps = None,
    seed: flags.Seed = flags.EVALUATION_SEED,
    deterministic: flags.Deterministic = True,
    record: Annotated[Path | None, Flag("record bundled environments: a .gif or an .mp4 file", "FILE")] = None,
    record_episodes: Annotated[int | None, Flag("record so many of the first agent", "N")] = None,
    record_seconds: Annotated[float | None, Flag("record so long (default 30)", "S")] = None,
    results_dir: flags.ResultsDir = flags.RESULTS,
    torch_device: flags.Device = "cpu",
    env_args: flags.EnvArgs = None,
    **more: Any,
) -> Iterator[Playing]:  # fmt: skip
    """A context for a play: its log goes to standard error, and at its end the film is there.

    more: fields of ``Playing`` besides those of the flags, or instead of them.

    Raises UserError at the end where the film was not written.
    """
    film = None if record is None else FilmOptions(record, record_episodes, record_seconds)
    given: dict[str, Any] = {
        "environment": environment_for(env, env_args=env_args),
        "max_episode_steps": max_episode_steps,
        "deterministic": deterministic,
        "seed": seed,
        "device": torch_device,
        "results_dir": results_dir,
        "film": film,
    }
    # Everything on the way goes to standard error: standard output is for the result.
    with filming(film), Console(tty=False, stream=sys.stderr):
        yield Playing(**(given | more))
    if film is not None:
        note(f"Recorded {film.path}")
