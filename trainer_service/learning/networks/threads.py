"""Threads of torch: several only for sufficiently large computations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """A context in which torch uses this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Threads(NamedTuple):
    """The number of threads for a behavior's updates, and the least number of agents whose decisions use them too.

    Threads that share little work wait for each other longer than one thread would take, in particular if a simulator
    uses the other core.
    """

    threads: int

    agents: int

    def for_update(self) -> AbstractContextManager[None]:
        """A context for an update."""
        return torch_threads(self.threads)

    def for_decision(self, agents: int) -> AbstractContextManager[None]:
        """A context for one decision of this many agents."""
        return torch_threads(self.threads) if agents >= self.agents else nullcontext()
