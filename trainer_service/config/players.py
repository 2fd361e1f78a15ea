"""Names of players in games: a run, one of its checkpoints, ``random`` or ``expert``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trainer_service.config.names import STATE_SUFFIXES, run_id_problem
from trainer_service.config.values import shown
from trainer_service.errors import ConfigError

RANDOM, EXPERT = "random", "expert"
LAST = "last"
_CHECKPOINT = re.compile(r"(?P<run>.+)@(?P<which>\d+|best|last)")


@dataclass(frozen=True, slots=True)
class PlayerName:
    """A player of games, by name: ``RUN``, ``RUN@120000``, ``RUN@best``, ``FILE``, ``random``, ``expert``."""

    text: str
    """As it was written."""

    run_id: str | None = None
    """The run whose policies play, or its folder; None where it is no run."""

    which: str = LAST
    """Which of the run's checkpoints: a step, ``best`` or ``last``."""

    @property
    def is_random(self) -> bool:
        """Whether it does anything that is allowed."""
        return self.text == RANDOM

    @property
    def is_expert(self) -> bool:
        """Whether it is the scene's own expert."""
        return self.text == EXPERT

    @property
    def is_file(self) -> bool:
        """Whether it is the file of one behavior's checkpoint."""
        return self.text.endswith(STATE_SUFFIXES)


def parse_player(text: str) -> PlayerName:
    """Reads the name of a player. A run that is called ``random`` is ``random@last``.

    Raises:
        ConfigError: it can be neither of them.
    """
    if text in (RANDOM, EXPERT) or text.endswith(STATE_SUFFIXES):
        return PlayerName(text)
    match = _CHECKPOINT.fullmatch(text)
    run_id, which = (match["run"], match["which"]) if match else (text, LAST)
    if reason := run_id_problem(Path(run_id).name):
        raise ConfigError(
            f"player {shown(text)}: expected a run, RUN@STEP, RUN@best, FILE.safetensors, random or expert; "
            f"a run id {reason}"
        )
    return PlayerName(text, run_id, which)
