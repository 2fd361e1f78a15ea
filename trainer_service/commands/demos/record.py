"""Recordings of demonstrators: of a scene's own expert, or of a trained run's policies."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from trainer_service.errors import UserError
from trainer_service.learning.rollout.whole_episodes import WholeEpisodes
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.evaluation.evaluate import PolicyActors
from trainer_service.running.evaluation.loop import EpisodeLoop, Play, PlayStopped
from unity_bridge.demonstrations import SUFFIX, DemonstratedSegment, DemonstrationWriter
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch


class Recording(WholeEpisodes):
    """One behavior's episodes on their way into a file. Episodes that are complete when the context ends are kept."""

    def __init__(self, path: Path, *, episodes: int, behavior: str | None = None) -> None:
        """
        Args:
            path: of the file.
            episodes: the first so many that start.
            behavior: which; may be left out if there is only one.
        """
        super().__init__(episodes)
        self._path = path
        self._wanted = behavior
        self._specs: dict[str, BehaviorSpec] = {}
        self._writer: DemonstrationWriter | None = None
        self.returns: list[float] = []
        """The raw return of each complete episode: the sum of the agent's own rewards."""
        self.steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *raised: object) -> None:
        if self._writer is None:
            return
        if kind is None and self.returns:
            self._writer.close()
        else:
            self._writer.abandon()

    @property
    def behavior(self) -> str:
        """The name of the recorded behavior; empty before any is declared."""
        return self._wanted or next(iter(self._specs), "")

    def declare(self, specs: Mapping[str, BehaviorSpec]) -> None:
        """Takes in new behaviors, by full id, and begins the file.

        Raises:
            UserError: the one that is wanted is not there, or there are several and none was named.
            DemonstrationError: the file cannot be written.
        """
        self._specs |= {parse_behavior_id(behavior_id)[0]: spec for behavior_id, spec in specs.items()}
        names = ", ".join(self._specs)
        if len(self._specs) > 1 and self._wanted is None:
            raise UserError(f"a recording holds one behavior, here are {names}; choose with --behavior")
        if self._specs and self.behavior not in self._specs:
            raise UserError(f"--behavior: expected one of {names}, got '{self.behavior}'")
        if self._specs and self._writer is None:
            self._writer = DemonstrationWriter(
                self._path, self.behavior, self._specs[self.behavior], name=self._path.stem
            )

    def observe(
        self, simulator: int, team: int, batch: StepBatch, cut: NDArray[np.bool_] | None = None
    ) -> list[DemonstratedSegment]:
        """Takes in the behavior's part of a tick, after ``declare``; writes and returns the episodes that it ended."""
        assert self._writer is not None
        ended = super().observe(simulator, team, batch, cut)
        for episode in ended:
            self._writer.write(episode)
            self.returns.append(float(episode.rewards.sum(dtype=float)))
            self.steps += len(episode)
        return ended


def record(loop: EpisodeLoop, actors: PolicyActors, recording: Recording) -> None:
    """Records actors until every episode is there, or a stop is requested.

    Raises:
        UserError: as from ``Recording.declare``, ``EpisodeLoop.play``, and the actors.
        BridgeError: a simulator or scene failed; or the file cannot be written.
    """
    with suppress(PlayStopped):
        loop.play(_RecordedPlay(loop, actors, recording))


class _RecordedPlay(Play):
    """Actors that are recorded."""

    def __init__(self, loop: EpisodeLoop, actors: PolicyActors, recording: Recording) -> None:
        super().__init__(actors)
        self._loop = loop
        self._demonstrators = actors
        self._recording = recording

    def step(self, tick: Tick) -> Mapping[str, ActionBatch]:
        """Records a tick and, unless it was the last, the actions for it."""
        recording, actors = self._recording, self._demonstrators
        actors.declare(tick)
        recording.declare(tick.new_specs)
        if recording.behavior and not self.tallies:
            self.tallies.append(self._loop.tally(f"'{recording.behavior}'", recording))
        names = {behavior_id: parse_behavior_id(behavior_id) for behavior_id in tick.steps}
        recorded = {each: team for each, (name, team) in names.items() if name == recording.behavior}
        for behavior_id, team in recorded.items():
            self.tallies[0].observe(tick.simulator, team, tick.steps[behavior_id])
        if self.complete:
            return {}
        replies = actors.act(tick)
        for behavior_id in recorded.keys() & replies.keys():
            batch, actions = tick.steps[behavior_id], replies[behavior_id]
            recording.acted(tick.simulator, recorded[behavior_id], batch, actions)
        return replies


def check_target(path: Path, *, force: bool) -> None:
    """Raises UserError unless a recording may be written there."""
    if path.is_dir():
        raise UserError(f"-o: expected the name of a file, got the folder '{path}'")
    if path.suffix != SUFFIX:
        raise UserError(
            f"-o: expected a name that ends in {SUFFIX}, got '{path}'; say '{path.with_suffix(SUFFIX)}'"
        )
    if path.exists() and not force:
        raise UserError(f"'{path}' exists; --force replaces it")
