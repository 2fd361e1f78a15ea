"""Which agents are taken for gone because their simulator does not mention them any more.

An agent that leaves should say that its episode ends. Some never do: a scene destroys them, or hides them for ever.
Others are only slow, in games of turns or where decisions are rare. Both are silent, so patience is long, and short
only where those who are silent are a crowd.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST_SILENCE = 10_000
"""Ticks of its simulator that an agent may stay silent for."""

CROWD = 4096
"""Agents of one simulator that may be silent for so long, at least."""

LONGEST_SILENCE_IN_A_CROWD = 256
"""The same for the agents of a simulator that has a crowd of silent ones, more than four times those it mentions."""

MOST_SILENT = 8192
"""Agents of one simulator that may be silent at all; beyond, those go that have been silent for longest."""

MOST_AGENTS = 65_536
"""Of one behavior in one simulator."""

_LOOK_EVERY = 64


class TooManyAgents(Exception):
    """A simulator has more agents of one behavior at a time than are served."""


def is_time_to_look(tick: int, known: int, mentioned: int) -> bool:
    """Whether to ask now who is gone: seldom, for usually everybody is there or soon will be again.

    known: agents of the simulator; mentioned: those of them that this tick speaks of.
    """
    return known > mentioned and (tick % _LOOK_EVERY == 0 or known - mentioned > _room_for_silent(mentioned))


def who_is_gone(silent_for: NDArray[Any], mentioned: int) -> NDArray[np.bool_]:
    """Tells of each known agent whether it is taken for gone.

    silent_for: ticks of its simulator since it was mentioned, 0 for those that this tick speaks of. Shape [K].
    """
    crowded = len(silent_for) > max(CROWD, 4 * mentioned)
    gone: NDArray[np.bool_] = silent_for > (LONGEST_SILENCE_IN_A_CROWD if crowded else LONGEST_SILENCE)
    silent, room = len(silent_for) - mentioned, _room_for_silent(mentioned)
    if silent - int(np.count_nonzero(gone)) > room:
        # More than needed, so that the next newcomers do not make us look at everybody again.
        longest = np.argsort(-silent_for, kind="stable")
        gone[longest[: silent - room * 3 // 4]] = True
    return gone


def _room_for_silent(mentioned: int) -> int:
    return max(0, min(MOST_SILENT, MOST_AGENTS - mentioned))
