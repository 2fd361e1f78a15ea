"""The flag ``--record`` of ``evaluate``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer_service.commands.common.output import note

if TYPE_CHECKING:
    from trainer_service.commands.play.films import FilmOptions


@contextmanager
def film_of(parsed: argparse.Namespace) -> Iterator[FilmOptions | None]:
    """A context in which the film that the flags ask for is made; None where they ask for none.

    Raises UserError at the end where it was not written.
    """
    from trainer_service.commands.play.films import FilmOptions

    if parsed.record is None:
        yield None
        return
    film = FilmOptions(parsed.record, parsed.record_episodes, parsed.record_seconds)
    with film.required():
        yield film
    note(f"Recorded {film.path}")
