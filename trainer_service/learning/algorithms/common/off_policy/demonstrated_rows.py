"""Demonstrated steps in minibatches beside replayed ones, Ball et al. 2023 (arXiv:2302.02948)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainer_service.errors import ConfigError, UserError
from trainer_service.learning.imitation.demonstrations import DemonstrationStore
from trainer_service.learning.imitation.reward_sizes import RewardSizes, remarks_on
from trainer_service.learning.replay.single_steps import SingleSteps
from trainer_service.learning.replay.transitions import Sample, TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.steps import join_observations

_logger = logging.getLogger(__name__)

RecordT = TypeVar("RecordT", Sample, SingleSteps)


class DemonstratedRows:
    """Rows that a replay buffer of demonstrated steps adds to every minibatch, drawn uniformly.

    They are read from the recording again when a run is resumed, so checkpoints do not contain them. Their numbers
    follow those of the learner's own rows.
    """

    def __init__(
        self,
        store: DemonstrationStore,
        make_buffer: Callable[[int], TransitionReplay],
        *,
        count: int,
        own_capacity: int,
        tells: bool = True,
    ) -> None:
        """count: rows of a minibatch. make_buffer: makes an empty buffer of a capacity. own_capacity: of the
        learner's own buffer. tells: whether this learner rank writes the warnings."""
        self.count = count
        self._store = store
        self._make_buffer = make_buffer
        self._first = own_capacity
        self._tells = tells
        self._buffer: TransitionReplay | None = None
        self._sizes = self._own_sizes = RewardSizes()

    def read(self) -> TransitionReplay:
        """Returns the recorded steps, read once. Warns of unusual content, and raises UserError for invalid content."""
        if self._buffer is not None:
            return self._buffer
        shown = self._store.read_trajectories()
        buffer = self._make_buffer(len(shown))
        try:
            buffer.add(shown)
        except ConfigError as error:
            raise UserError(f"'{self._store.path}': {error}") from None
        self._buffer, self._sizes = buffer, RewardSizes().and_of(shown)
        for remark in remarks_on(shown) if self._tells else ():
            _logger.warning("'%s': %s", self._store.path, remark)
        return buffer

    def compare(self, trajectories: Trajectories) -> None:
        """Warns once if the run's rewards have another scale than the recording's. trajectories: new ones."""
        if not self._tells:
            return
        self._own_sizes = self._own_sizes.and_of(trajectories)
        if factor := self._own_sizes.factor_to(self._sizes):
            self._tells = False
            _logger.warning(
                "'%s': the recorded rewards are about %.2g times those of this run (typical ones %.3g and %.3g). "
                "Demonstrated and own steps share one critic; record again with the rewards of this environment.",
                self._store.path, factor, self._sizes.typical, self._own_sizes.typical,
            )  # fmt: skip

    def beside(self, own: Sample, rng: np.random.Generator) -> Sample:
        """Returns a sample of own rows with demonstrated ones behind them."""
        shown = self.read().sample(self.count, rng)
        weights = None if own.weights is None else np.ones(self.count, np.float32)
        return _joined(own, replace(shown, rows=shown.rows + self._first, weights=weights))

    def single_steps(self, own: TransitionReplay, rows: Rows, ahead: int) -> SingleSteps:
        """Returns the single steps of own and demonstrated rows, see ``ReplayBuffer.single_steps``."""
        demonstrated = rows >= self._first
        found = []
        for buffer, chosen, first in ((own, ~demonstrated, 0), (self.read(), demonstrated, self._first)):
            steps = buffer.single_steps(rows[chosen] - first, ahead)
            later, row = steps.places
            found.append(replace(steps, places=(later, np.flatnonzero(chosen)[row])))
        return _joined(*found)


def _joined(first: RecordT, second: RecordT) -> RecordT:
    """Concatenates the rows of all arrays in two records, also in tuples."""
    joined: dict[str, Any] = {}
    for field in fields(first):
        parts = getattr(first, field.name), getattr(second, field.name)
        if isinstance(parts[0], tuple):
            joined[field.name] = tuple(map(_column, *parts))
        elif parts[0] is not None:
            joined[field.name] = _column(*parts)
    return replace(first, **joined)


def _column(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    # One of them may hold bytes of pictures, and the other one floats of the same meaning.
    return (
        join_observations((first, second))
        if np.uint8 in (first.dtype, second.dtype)
        else np.concatenate([first, second])
    )
