"""The recorders of a scene as a film."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from unity_bridge.simulators.rendering.films import FILMS, Film
from unity_bridge.simulators.scene import Scene, SceneError, Steps

LONGEST_S = 30.0
"""The length of a recording by default, in the scene's own time."""


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
        self._size: tuple[int, ...] | None = None

    def capture(self) -> None:
        """Films the scene as it stands, unless the film is as long as it may be.

        Raises:
            SceneError: the picture has another size than the first, or the film cannot be written.
        """
        if self._seen >= self._limit:
            return
        if self._seen % self._stride == 0:
            frame = self._scene.render()
            self._size = self._size or frame.shape
            if frame.shape != self._size:
                raise SceneError(f"render(): expected a picture {self._size}, as before, got {frame.shape}")
            try:
                self._film.add(frame)
            except OSError as error:
                raise SceneError(f"--record {self._path}: {error.strerror or error}") from error
            self._frames += 1
        self._seen += 1

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
        """Lets go of what was filmed."""
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

    def capture(self, steps: Steps) -> None:
        """Films the scene as it stands after these steps.

        Raises:
            SceneError: the picture has another size than the first, or the film cannot be written.
        """
        self._filmed.watch(steps)
        if self._episodes is None or self._filmed.begun <= self._episodes:
            self._take.capture()

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

    def capture(self, steps: Steps) -> None:
        """Films the scene as it stands after these steps. Raises SceneError like ``FilmRecorder.capture``."""
        before = self._filmed.begun
        self._filmed.watch(steps)
        if before and self._filmed.begun > before:
            self._end_episode()
            self._take = _Take(self._scene, self._path, self._seconds, self._filmed.begun)
        self._take.capture()

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


class _FilmedAgent:
    """The agent that a recording counts episodes of: the first that asks for an action.

    An episode is over when the next one begins, not when the agent dies: its group may live on.
    """

    def __init__(self) -> None:
        self.begun = 0
        """Its episodes that have begun."""
        self.last_return = 0.0
        """The return of its newest ended episode; before any, of the running one."""
        self._agent: tuple[str, int] | None = None
        self._alive = False
        self._return = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether its newest episode ended, and no other has begun."""
        return self.begun > 0 and not self._alive

    def watch(self, steps: Steps) -> None:
        for behavior, batch in steps.items():
            ids = batch.agent_ids
            if self._agent is None and batch.num_terminal < len(ids):
                self._agent = (behavior, int(ids[batch.num_terminal]))
            if self._agent is None or behavior != self._agent[0]:
                continue
            for row in np.flatnonzero(ids == self._agent[1]).tolist():
                asks = row >= batch.num_terminal
                if asks and not self._alive:
                    self.begun += 1
                    self._alive, self._return = True, 0.0
                    continue  # what it earned before belongs to no episode
                self._return += float(batch.rewards[row] + batch.group_rewards[row])
                if not asks:
                    self._alive = False
                if not asks or self.begun == 1:
                    self.last_return = self._return
