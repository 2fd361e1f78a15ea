"""How many threads torch gets."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer_service.behaviors.behavior import Behavior

WORTH_A_SECOND_CORE = 2**18
"""Numbers in the widest layer of a minibatch. Handing 64 rows of a 128-wide layer to a second core takes longer than
multiplying them; and where a simulator or another run wants that core, waiting for it makes small layers ten times
slower, those of small pictures too."""


def threads_for(behaviors: Sequence[Behavior], cores: int | None = None) -> int:
    """One thread where all minibatches are small, all cores where one is large.

    Args:
        behaviors: that share this process.
        cores: those that this process may use if None.
    """
    if max(map(_widest_layer, behaviors)) < WORTH_A_SECOND_CORE:
        return 1
    return cores or usable_cores()


def usable_cores() -> int:
    """``OMP_NUM_THREADS`` where somebody set it, as one does on a machine that is shared; else the cores there are."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _widest_layer(behavior: Behavior) -> int:
    """Numbers that a minibatch is in the widest layer of the policy."""
    modules = behavior.policy_network().modules()
    widest: int = max(getattr(module, "widest", 1) for module in modules)
    settings = behavior.settings
    return settings.hyperparameters.batch_size * max(widest, settings.network_settings.hidden_units)
