"""What a scene looked like, as an animated GIF."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from unity_bridge.simulators.scene import Scene

if TYPE_CHECKING:
    from PIL import Image

LONGEST_S = 30.0
"""Frames are kept in memory, so a recording covers the beginning of a run, in the scene's own time."""


class Recorder:
    """Collects a frame whenever it is told that the scene changed, for the first 30 seconds."""

    def __init__(self, scene: Scene, path: Path) -> None:
        self._scene = scene
        self._path = path
        self._frames: list[Image.Image] = []
        self._limit = max(1, round(LONGEST_S / scene.frame_s))

    def capture(self) -> None:
        if len(self._frames) >= self._limit:
            return
        from PIL import Image  # a simulator that nobody watches starts without it

        picture = Image.fromarray(self._scene.render())
        self._frames.append(picture.quantize(64))

    def save(self) -> int:
        """Writes the file, whole or not at all.

        Returns:
            Number of frames; with none there is no file.

        Raises:
            OSError: the file cannot be written.
        """
        if not self._frames:
            return 0
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                self._write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        finally:
            temporary.unlink(missing_ok=True)
        return len(self._frames)

    def _write(self, file: BinaryIO) -> None:
        first, *others = self._frames
        duration_ms = max(20, round(self._scene.frame_s * 1000))  # viewers slow down what is faster
        first.save(file, "GIF", save_all=True, append_images=others, duration=duration_ms, loop=0)
