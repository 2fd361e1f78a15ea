"""Threads of torch: several only while there is enough to compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """A context in which torch computes with that many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Threads(NamedTuple):
    """The number of threads for a behavior's updates, and the number of agents from which decisions use them too.

    Threads that share little work wait for each other longer than one alone would take, most of all where a
    simulator has the other core.
    """

    threads: int

    agents: int

    def for_update(self) -> AbstractContextManager[None]:
        """A context for an update."""
        return torch_threads(self.threads)

    def for_decision(self, agents: int) -> AbstractContextManager[None]:
        """A context for one decision of so many agents."""
        return torch_threads(self.threads) if agents >= self.agents else nullcontext()
