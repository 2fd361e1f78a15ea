"""Large batches as chunks that stay in the cache, and observations as floats."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_MOST_ROWS = 4096
_MOST_FLOATS = 1 << 20


def observations_as_floats(observations: Sequence[Tensor]) -> list[Tensor]:
    """What observations stand for: bytes as byte/255, floats as they are."""
    return [sensor / 255 if sensor.dtype == torch.uint8 else sensor for sensor in observations]


def rows_at_once(network: nn.Module) -> int:
    """As many rows as keep the network's widest layer within a few megabytes."""
    widest: int = max(getattr(module, "widest", 1) for module in network.modules())
    return min(_MOST_ROWS, max(1, _MOST_FLOATS // widest))


def in_chunks(rows: int, size: int) -> list[slice]:
    """Slices that cover ``rows`` in chunks of at most ``size``: a large batch that stays in the cache."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
