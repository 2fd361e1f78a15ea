"""Resources of torch: a device, a seed, threads, and an error message where memory runs out."""

from __future__ import annotations

import logging
import re
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from trainer_service.config import TrainerSettings
from trainer_service.config.run_options import Precision
from trainer_service.errors import OutOfMemory, UserError
from trainer_service.learning.networks.encoders.precision import is_fast
from trainer_service.learning.networks.threads import Threads
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.names import nearest_choice
from unity_bridge.programs.cores import usable_cores

WORTH_A_SECOND_CORE = 2**18
"""Numbers in the widest layer of a minibatch. Handing 64 rows of a 128-wide layer to a second core takes longer than
multiplying them; and where a simulator or another run wants that core, waiting for it makes small layers ten times
slower, those of small pictures too."""

WORTH_A_GPU = 2**27
"""Weights of the policy times rows of a minibatch. A gradient step of fewer is a hundred small kernels, whose launches
take a GPU as long as the whole step takes the CPU; and acting waits for the GPU at every exchange."""

_WORDS = (
    "out of memory", "ALLOC_FAILED", "can't allocate memory", "not enough memory", "Storage size calculation overflowed"
)  # fmt: skip
"""Words in torch's other errors: of the device (twice), of Linux, of Windows, and of sizes beyond any memory."""

_logger = logging.getLogger(__name__)


def choose_device(name: str | None) -> torch.device:
    """The device that the user named, or the best one at hand (also named ``auto``): a GPU if there is one.

    Raises:
        UserError: no such device here.
    """
    at_hand = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = at_hand if name in (None, "", "auto") else name
    try:
        device = torch.device(chosen)
    except RuntimeError:  # its own message lists twenty kinds
        meant = re.sub("gpu|nvidia", "cuda", chosen.lower())
        near = (
            meant
            if re.fullmatch(r"cuda(:\d+)?", meant)
            else nearest_choice(meant, ("cpu", "cuda", "mps", "auto"))
        )
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"torch device '{chosen}': expected cpu, cuda, cuda:N, mps or auto{hint}") from None
    try:
        torch.zeros(1, device=device).item()  # a device that holds no numbers, such as meta, is none
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"torch device '{chosen}' cannot be used here: {reason}") from None
    return device


def device_for(name: str | None, at_hand: torch.device, on_cpu: Callable[[], Behavior]) -> torch.device:
    """The device of a behavior: the one that the user named, else the one that its work is worth.

    That is a GPU for pictures and where a minibatch is much arithmetic, and the CPU for the rest.

    Args:
        name: as the user named it; None if not.
        at_hand: what ``choose_device`` made of the name.
        on_cpu: makes the behavior on the CPU, to look at; called only where there is a choice.
    """
    cpu = torch.device("cpu")
    if name is not None or at_hand == cpu:
        return at_hand
    behavior = on_cpu()
    pictures = any(sensor.is_picture for sensor in behavior.spec.observation_specs)
    products = _products(behavior)
    chosen, other = (at_hand, cpu) if pictures or products >= WORTH_A_GPU else (cpu, at_hand)
    _logger.info(
        "'%s' learns and acts on '%s': its minibatches have %s. --torch-device %s (torch_settings.device) overrides.",
        behavior.name,
        chosen,
        "pictures"
        if pictures
        else f"{products:,} products of a weight and a row, and a GPU pays from {WORTH_A_GPU:,} on",
        other,
    )
    return chosen


def warn_of_slow_precision(precision: Precision, device: torch.device) -> None:
    """Warns where products in that precision take longer than single ones, for want of instructions."""
    if not is_fast(precision, device):
        _logger.warning(
            "torch_settings.precision: '%s' has no instructions for %s, which makes pictures slower here, not faster",
            device,
            precision,
        )


def seed_of(seed: int, behavior: str) -> int:
    """A seed for one behavior that depends on nothing but the run's seed and its name."""
    return (seed * 1_000_003 + zlib.crc32(behavior.encode())) % 2**62


def threads_for(behaviors: Sequence[Behavior], cores: int | None = None) -> int:
    """Returns the number of threads: one if all minibatches are small, all cores if one is large.

    Args:
        behaviors: the behaviors of this process.
        cores: the number of cores; None for all that this process may use.
    """
    if max(map(_widest_layer, behaviors)) < WORTH_A_SECOND_CORE:
        return 1
    return cores or usable_cores()


def divided_threads(behavior: Behavior, threads: int) -> Threads:
    """So many threads for a behavior's updates, and for decisions of as many agents as are worth a second core."""
    return Threads(threads, -(-WORTH_A_SECOND_CORE // _widest_row(behavior)))


def _products(behavior: Behavior) -> int:
    """Products of a weight and a number that a forward pass of a minibatch has in the policy, without pictures'."""
    network = behavior.learner.actor.policy_network()
    weights = sum(parameter.numel() for parameter in network.parameters())
    for module in network.modules():  # weights that are applied to each entity
        more = getattr(module, "entities", 1) - 1
        weights += more * sum(parameter.numel() for parameter in module.parameters()) if more else 0
    return behavior.settings.hyperparameters.batch_size * weights


def _widest_layer(behavior: Behavior) -> int:
    """Numbers that a minibatch is in the widest layer of the policy."""
    return behavior.settings.hyperparameters.batch_size * _widest_row(behavior)


def _widest_row(behavior: Behavior) -> int:
    """Numbers that one observation is in the widest layer of the policy."""
    modules = behavior.learner.actor.policy_network().modules()
    widest: int = max(getattr(module, "widest", 1) for module in modules)
    return max(widest, behavior.settings.network_settings.hidden_units)


@contextmanager
def memory_for(behavior: str, settings: TrainerSettings) -> Iterator[None]:
    """A context in which a behavior is made. Raises OutOfMemory, which names its sizes, where there is too little."""
    try:
        yield
    except Exception as error:
        if not _means_memory(error):
            raise
        raise OutOfMemory(
            f"out of memory for the networks of '{behavior}': {_reason(error)}. Its network_settings and "
            f"hyperparameters have {_sizes(settings)}; smaller ones need less"
        ) from error


def out_of_memory(error: Exception, behaviors: Sequence[Behavior]) -> OutOfMemory | None:
    """An error message for users, if an error means too little memory; None for every other error.

    The traceback goes to the debug log, and its memory is freed, so that saving has enough memory.
    """
    if not _means_memory(error):
        return None
    _logger.debug("Out of memory:", exc_info=error)
    traceback.clear_frames(error.__traceback__)
    torch.cuda.empty_cache()  # nothing where no GPU was used
    asked = "; ".join(f"'{each.name}' has {_sizes(each.settings)}" for each in behaviors)
    devices = "".join(sorted({f" on '{each.compute.device}'" for each in behaviors}))
    return OutOfMemory(
        f"out of memory{devices}: {_reason(error)}. {asked or 'No behavior was made yet'}. Smaller ones need less, "
        "a smaller batch_size first; --resume continues from what is saved"
    )


def _reason(error: Exception) -> str:
    return (str(error).strip() or "no reason was given").splitlines()[0][:300]


def _means_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def _sizes(settings: TrainerSettings) -> str:
    """The settings that memory depends on, as ``key value``."""
    tuning, network = settings.hyperparameters, settings.network_settings
    sizes = {
        "batch_size": tuning.batch_size,
        "buffer_size": getattr(tuning, "buffer_size", None),
        "sequence_length": network.memory.sequence_length if network.memory is not None else None,
        "hidden_units": network.hidden_units,
        "num_layers": network.num_layers,
    }
    return ", ".join(f"{key} {value}" for key, value in sizes.items() if value is not None)
