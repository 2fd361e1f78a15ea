"""Files of moving pictures: GIF with Pillow, MP4 with ffmpeg. Both are imported only for a recording."""

from __future__ import annotations

import importlib.util
import io
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from unity_bridge.extras import install_hint

if TYPE_CHECKING:
    from PIL import Image

Frame = NDArray[np.uint8]
"""RGB, shape [H, W, 3]."""

_COLORS = 64


class Film(Protocol):
    """Frames of one size and one duration, on their way into a file."""

    shortest_s: ClassVar[float]
    """The shortest time that common viewers show a frame for."""

    def __init__(self, path: Path, frame_s: float) -> None: ...

    def add(self, frame: Frame) -> None:
        """Adds one frame. Raises OSError."""

    def finish(self) -> None:
        """Completes the file. Raises OSError."""

    def abandon(self) -> None:
        """Closes the file, complete or not. Does nothing after ``finish``."""


class Gif:
    """An animated GIF. Its frames are kept in memory, in 64 colours each, until it is finished."""

    shortest_s: ClassVar[float] = 0.02

    def __init__(self, path: Path, frame_s: float) -> None:
        self._path = path
        self._duration_ms = round(frame_s * 1000)
        self._frames: list[Image.Image] = []

    def add(self, frame: Frame) -> None:
        from PIL import Image

        self._frames.append(Image.fromarray(frame).quantize(_COLORS))

    def finish(self) -> None:
        first, *others = self._frames
        content = io.BytesIO()
        first.save(content, "GIF", save_all=True, append_images=others, duration=self._duration_ms, loop=0)
        self._path.write_bytes(content.getvalue())

    def abandon(self) -> None:
        self._frames.clear()


class Mp4:
    """H.264 in MP4, which every browser plays. Each frame goes to ffmpeg at once."""

    shortest_s: ClassVar[float] = 1 / 60

    def __init__(self, path: Path, frame_s: float) -> None:
        self._path = path
        self._frame_s = frame_s
        self._ffmpeg: subprocess.Popen[bytes] | None = None

    def add(self, frame: Frame) -> None:
        frame = _even(frame)
        if self._ffmpeg is None:
            self._ffmpeg = self._start(frame.shape[1], frame.shape[0])
        assert self._ffmpeg.stdin is not None
        self._ffmpeg.stdin.write(frame.tobytes())

    def finish(self) -> None:
        assert self._ffmpeg is not None
        self._ffmpeg.communicate()
        if code := self._ffmpeg.returncode:
            raise OSError(f"ffmpeg ended with code {code} and no film")

    def abandon(self) -> None:
        if self._ffmpeg is not None and self._ffmpeg.poll() is None:
            self._ffmpeg.kill()
            self._ffmpeg.communicate()

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        import imageio_ffmpeg

        line = [
            imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error",
            "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{1 / self._frame_s:.6f}",
            "-i", "-", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4",
            str(self._path),
        ]  # fmt: skip
        # A session of its own: Ctrl-C is for the simulator, which then finishes the film.
        return subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )


FILMS: Mapping[str, type[Film]] = {".gif": Gif, ".mp4": Mp4}
"""Kinds of films, by the suffix of the file's name."""


def recording_problem(path: Path) -> str | None:
    """The reason why a recording cannot go there, in words; None where it can."""
    suffix = path.suffix.lower()
    if suffix not in FILMS:
        return f"expected a .gif or .mp4 file, got '{path}'"
    if suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        return f"'{path}' needs ffmpeg; run: {install_hint('video')}. A .gif file needs nothing more"
    if not path.absolute().parent.is_dir():
        return f"'{path}': there is no folder '{path.parent}'"
    return None


def _even(frame: Frame) -> Frame:
    """The frame with its last row and column doubled where their number is odd, which H.264 cannot have."""
    height, width, _ = frame.shape
    if height % 2 or width % 2:
        return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return frame
