"""The recorder of a scene as a film."""

from __future__ import annotations

import math
import os
from pathlib import Path

from unity_bridge.simulators.rendering.films import FILMS, Film
from unity_bridge.simulators.scene import Scene, SceneError, Steps

LONGEST_S = 30.0
"""The length of a recording by default, in the scene's own time."""


class FilmRecorder:
    """Films a scene from its beginning, until a number of episodes or seconds is over.

    The film runs as fast as the scene says. Where that is faster than viewers can show, frames are left out.
    """

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
        self._scene = scene
        self._path = path
        kind = FILMS[path.suffix.lower()]
        self._stride = max(1, math.ceil(kind.shortest_s / scene.frame_s - 1e-9))
        self._limit = max(1, round(seconds / scene.frame_s))
        # A name of its own, so that a half-written film never stands where a whole one is expected.
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._film: Film = kind(self._temporary, scene.frame_s * self._stride)
        self._filmed = _FilmedAgent(episodes)
        self._seen = 0
        self._frames = 0
        self._size: tuple[int, ...] | None = None

    def capture(self, steps: Steps) -> None:
        """Films the scene as it stands after these steps.

        Raises:
            SceneError: the picture has another size than the first, or the film cannot be written.
        """
        self._filmed.watch(steps)
        if self._filmed.is_over or self._seen >= self._limit:
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
        """Puts the file in its place, whole or not at all.

        Returns:
            Number of frames; with none there is no file.

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
            self._film.abandon()
            self._temporary.unlink(missing_ok=True)
        return self._frames


class _FilmedAgent:
    """The agent that a recording counts episodes of: the first that asks for an action.

    An episode is over when the next one begins, not when the agent dies: its group may live on.
    """

    def __init__(self, episodes: int | None) -> None:
        self._left = episodes
        self._agent: tuple[str, int] | None = None
        self._alive = False

    @property
    def is_over(self) -> bool:
        """Whether more episodes have begun than were asked for."""
        return self._left is not None and self._left < 0

    def watch(self, steps: Steps) -> None:
        for behavior, batch in steps.items():
            ids = batch.agent_ids.tolist()
            ended, asking = ids[: batch.num_terminal], ids[batch.num_terminal :]
            if self._agent is None and asking:
                self._agent = (behavior, asking[0])
            if self._agent is None or behavior != self._agent[0]:
                continue
            if self._agent[1] in ended:
                self._alive = False
            if self._agent[1] in asking and not self._alive:
                self._alive = True
                if self._left is not None:
                    self._left -= 1
