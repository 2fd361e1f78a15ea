"""The recorders of a scene as a film."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unity_bridge.simulators.rendering.captions import captioned
from unity_bridge.simulators.rendering.films import FILMS, Film, Frame
from unity_bridge.simulators.scene import Scene, SceneError, Steps

LONGEST_S = 30.0
"""The length of a recording by default, in the scene's own time."""


Caption = tuple[str, str]
"""The state of the filmed agent's episode, and the result of its newest ended one."""


class _Take:
    """A film of a scene in the making, as fast as the scene says.

    Where that is faster than viewers can show, frames are left out.
    """

    def __init__(self, scene: Scene, path: Path, seconds: float, number: int = 0) -> None:
        """number: of the take, for takes of one film are there beside each other."""
        self._scene = scene
        self._path = path
        kind = FILMS[path.suffix.lower()]
        self._stride = max(1, math.ceil(kind.shortest_s / scene.frame_s - 1e-9))
        self._limit = max(1, round(seconds / scene.frame_s))
        # A name of its own, so that a half-written film never stands where a whole one is expected.
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.{number}.tmp")
        self._film: Film = kind(self._temporary, scene.frame_s * self._stride)
        self._seen = 0
        self._frames = 0
        self._picture: Frame | None = None
        """The newest, without its caption."""

    def capture(self, caption: Caption) -> None:
        """Films the scene as it stands, unless the film is as long as it may be.

        Raises:
            SceneError: the picture has another size than the first, or the film cannot be written.
        """
        if self._seen >= self._limit:
            return
        if self._seen % self._stride == 0:
            picture, before = self._scene.render(), self._picture
            if before is not None and picture.shape != before.shape:
                raise SceneError(
                    f"render(): expected a picture {before.shape}, as before, got {picture.shape}"
                )
            self._picture = picture
            self._add(picture, caption)
        self._seen += 1

    def close(self, caption: Caption) -> None:
        """Shows the newest picture once more, with the caption of an episode that has ended. Raises as ``capture``.

        The scene itself may already show the next episode.
        """
        if self._picture is not None and self._seen < self._limit:
            self._add(self._picture, caption)

    def _add(self, picture: Frame, caption: Caption) -> None:
        try:
            self._film.add(captioned(picture, caption))
        except OSError as error:
            raise SceneError(f"--record {self._path}: {error.strerror or error}") from error
        self._frames += 1

    def save(self) -> int:
        """Puts the file in its place, whole or not at all. Returns the number of frames; with none there is no file.

        Raises:
            OSError: the file cannot be written.
        """
        if not self._frames:
            return 0
        try:
            self._film.finish()
            with self._temporary.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(self._temporary, self._path)
        finally:
            self.abandon()
        return self._frames

    def abandon(self) -> None:
        """Discards the unfinished film."""
        self._film.abandon()
        self._temporary.unlink(missing_ok=True)


class FilmRecorder:
    """Films a scene from its beginning, until a number of episodes or seconds is over."""

    def __init__(
        self, scene: Scene, path: Path, *, episodes: int | None = None, seconds: float = LONGEST_S
    ) -> None:
        """
        Args:
            scene: what to film; it must have been made to be rendered.
            path: of the .gif or .mp4 file, in a folder that exists.
            episodes: film so many of the first agent, or of its group where it dies before its group; None is
                no limit.
            seconds: at most, in the scene's own time.
        """
        self._take = _Take(scene, path, seconds)
        self._filmed = _FilmedAgent()
        self._episodes = episodes

    def capture(self, steps: Steps, is_reset: bool = False) -> None:
        """Films the scene as it stands after these steps.

        Args:
            steps: what the scene is about to say.
            is_reset: whether the trainer has reset the scene, which interrupts the episodes.

        Raises:
            SceneError: the picture has another size than the first, or the film cannot be written.
        """
        before = self._filmed.begun
        self._filmed.watch(steps, is_reset)
        if self._episodes is None or self._filmed.begun <= self._episodes:
            self._take.capture(self._filmed.caption)
        elif before == self._episodes and self._filmed.has_restarted:
            self._take.close(self._filmed.caption)

    def save(self) -> int:
        """Puts the file in its place, whole or not at all.

        Returns:
            Number of frames; with none there is no file.

        Raises:
            OSError: the file cannot be written.
        """
        return self._take.save()


class BestEpisodeRecorder:
    """Films each episode of the first agent, and keeps the one with the highest return.

    The return is of the agent's own rewards and its group's. Of the episode that runs at the end only what there is of
    it counts, and only where no other came to its end.
    """

    def __init__(self, scene: Scene, path: Path, *, seconds: float = LONGEST_S) -> None:
        """scene, path: as for ``FilmRecorder``. seconds: of each episode, at most."""
        self._scene = scene
        self._path = path
        self._seconds = seconds
        self._filmed = _FilmedAgent()
        self._take = _Take(scene, path, seconds)
        self._best: tuple[float, _Take] | None = None

    def capture(self, steps: Steps, is_reset: bool = False) -> None:
        """Films the scene as it stands after these steps. Takes and raises what ``FilmRecorder.capture`` does."""
        before = self._filmed.begun
        self._filmed.watch(steps, is_reset)
        if before and self._filmed.begun > before:
            if self._filmed.has_restarted:
                self._take.close(self._filmed.caption)
            self._end_episode()
            self._take = _Take(self._scene, self._path, self._seconds, self._filmed.begun)
        self._take.capture(self._filmed.caption)

    def save(self) -> int:
        """Puts the best episode in its place. Returns and raises like ``FilmRecorder.save``."""
        if self._best is None or self._filmed.has_ended:
            self._end_episode()
        else:
            self._take.abandon()
        assert self._best is not None
        return self._best[1].save()

    def _end_episode(self) -> None:
        """Keeps the better of two takes: the newest, and the best before."""
        newest = (self._filmed.last_return, self._take)
        if self._best is None:
            self._best = newest
            return
        better, worse = (newest, self._best) if newest[0] > self._best[0] else (self._best, newest)
        worse[1].abandon()
        self._best = better


@dataclass(slots=True)
class _FilmedEpisode:
    """An episode of the filmed agent."""

    number: int
    """From 1 on."""
    steps: int = 0
    earned: float = 0.0
    """The agent's own rewards and its group's."""
    outcome: str = ""
    """How it ended; empty while it runs."""

    @property
    def progress(self) -> str:
        return f"episode {self.number}   step {self.steps}   return {self.earned:.3f}"

    @property
    def result(self) -> str:
        return f"episode {self.number}: return {self.earned:.3f}, {self.outcome}"


class _FilmedAgent:
    """The agent that a recording counts episodes of: the first that asks for an action.

    An episode is over when the next one begins, not when the agent dies: its group may live on.
    """

    def __init__(self) -> None:
        self.has_restarted = False
        """Whether the newest message ended an episode and began the next."""
        self._agent: tuple[str, int] | None = None
        self._newest: _FilmedEpisode | None = None
        self._ended: _FilmedEpisode | None = None

    @property
    def begun(self) -> int:
        """Its episodes that have begun."""
        return self._newest.number if self._newest else 0

    @property
    def has_ended(self) -> bool:
        """Whether its newest episode ended, and no other has begun."""
        return self._newest is not None and self._newest is self._ended

    @property
    def last_return(self) -> float:
        """The return of its newest ended episode; before any, of the running one."""
        episode = self._ended or self._newest
        return episode.earned if episode else 0.0

    @property
    def caption(self) -> Caption:
        """The caption of a frame. A message that ends one episode and begins the next counts for the ended one."""
        shown = self._ended if self.has_restarted else self._newest
        return (shown.progress if shown else "", self._ended.result if self._ended else "")

    def watch(self, steps: Steps, is_reset: bool) -> None:
        """Follows the agent through a message. is_reset: whether its running episode was interrupted before."""
        self.has_restarted = False
        before = self._ended
        if is_reset and self._newest is not None and not self.has_ended:
            self._newest.outcome, self._ended = "interrupted", self._newest
        for behavior, batch in steps.items():
            ids = batch.agent_ids
            if self._agent is None and batch.num_terminal < len(ids):
                self._agent = (behavior, int(ids[batch.num_terminal]))
            if self._agent is None or behavior != self._agent[0]:
                continue
            for row in np.flatnonzero(ids == self._agent[1]).tolist():
                asks = row >= batch.num_terminal
                if self._newest is None or self.has_ended:
                    if asks:  # what it earned before belongs to no episode
                        self._newest = _FilmedEpisode(self.begun + 1)
                        self.has_restarted = self._ended is not before
                    continue
                self._newest.steps += 1
                self._newest.earned += float(batch.rewards[row] + batch.group_rewards[row])
                if not asks:
                    self._newest.outcome = "time limit" if batch.truncated[row] else "terminated"
                    self._ended = self._newest
