"""Too little memory, in words: what asked for it, and what to make smaller."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable

import torch

from trainer_service.behaviors.behavior import Behavior
from trainer_service.config import TrainerSettings
from trainer_service.errors import OutOfMemory

_WORDS = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "not enough memory")
"""What torch's other errors say: of the device (twice), of Linux, and of Windows."""

_logger = logging.getLogger(__name__)


def in_words(error: Exception, behaviors: Iterable[Behavior], device: torch.device) -> OutOfMemory | None:
    """What to tell the user of an error that means too little memory; None for every other error.

    The traceback goes to the debug log, and what it held in memory is given back, so that saving finds room.
    """
    if not _means_memory(error):
        return None
    _logger.debug("Out of memory:", exc_info=error)
    traceback.clear_frames(error.__traceback__)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    reason = (str(error).strip() or "no reason was given").splitlines()[0][:300]
    asked = "; ".join(f"'{each.name}' has {_sizes(each.settings)}" for each in behaviors)
    return OutOfMemory(
        f"out of memory on '{device}': {reason}. {asked or 'No behavior was made yet'}. Smaller ones need less, "
        "a smaller batch_size first; --resume goes on from what is saved"
    )


def _means_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def _sizes(settings: TrainerSettings) -> str:
    """What memory depends on, in the words of the configuration."""
    tuning, network = settings.hyperparameters, settings.network_settings
    sizes = {
        "batch_size": tuning.batch_size,
        "buffer_size": getattr(tuning, "buffer_size", None),
        "sequence_length": network.memory.sequence_length if network.memory is not None else None,
        "hidden_units": network.hidden_units,
        "num_layers": network.num_layers,
    }
    return ", ".join(f"{key} {value}" for key, value in sizes.items() if value is not None)
