"""Films the bundled scenes, each played by its own expert, for docs/gallery.md.

python tools/make_gallery.py                 # all films, into docs/images/gallery
python tools/make_gallery.py hallway duel    # some of them
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = Path("docs/images/gallery")
WIDTH = 480
"""Limit of a film's width, in pixels."""
COLORS = 64
LONGEST_MS = 120
"""Frames are left out where the rest then follow each other in this time or less."""


@dataclass(frozen=True)
class Film:
    """One film: options of the scene, and its length in episodes of the first agent and seconds of the scene."""

    options: str
    episodes: int = 2
    seconds: float = 10


ONE_AGENT, ONE_COPY = "--agents 1", "--copies 1"
FILMS = {
    "3dball": Film("--agents 4", episodes=1, seconds=4.5),
    "basic": Film(ONE_AGENT),
    "hybrid": Film(ONE_AGENT),
    "gridworld": Film(ONE_AGENT, episodes=4),
    "sorter": Film(ONE_AGENT),
    "walljump": Film(ONE_AGENT, episodes=3),
    "hallway": Film(ONE_AGENT, episodes=3),
    "pyramids": Film(ONE_AGENT, episodes=1),
    "spread": Film(ONE_COPY, episodes=3),
    "switch2": Film(ONE_COPY),
    "switch4": Film(ONE_COPY),
    "pushblock": Film(ONE_COPY, episodes=1),
    "goal": Film(ONE_COPY, episodes=3),
    "duel": Film(ONE_COPY, episodes=1, seconds=7),
}


def record(name: str, film: Film, path: Path) -> None:
    """Records a scene as ``mlagents-style play`` does. Raises CalledProcessError."""
    line = [  # episodes are of all agents: four of them at most
        sys.executable, "-m", "trainer_service", "play", f"sim:{name}", "--policy=expert", "--seed=1",
        f"--episodes={4 * film.episodes}", f"--record={path}", f"--record-episodes={film.episodes}",
        f"--record-seconds={film.seconds:g}", "--env-args", *film.options.split(),
    ]  # fmt: skip
    subprocess.run(line, check=True, cwd=path.parent)


def shrink(path: Path, target: Path) -> int:
    """Writes a GIF again with fewer pixels, colors and frames. Returns its size in bytes."""
    with Image.open(path) as film:
        duration = int(film.info["duration"])
        stride = max(1, LONGEST_MS // duration)
        scale = min(1.0, WIDTH / film.width)
        size = (round(scale * film.width), round(scale * film.height))
        frames = []
        for number in range(0, film.n_frames, stride):
            film.seek(number)
            frames.append(film.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    first, *others = _with_one_palette(frames)
    first.save(
        target, "GIF", save_all=True, append_images=others, duration=stride * duration, loop=0, optimize=True
    )
    return target.stat().st_size


def _with_one_palette(frames: list[Image.Image]) -> list[Image.Image]:
    """The frames with the same few colors, so that a GIF holds only what changes between them."""
    some = frames[:: max(1, len(frames) // 8)]
    width, height = frames[0].size
    sheet = Image.new("RGB", (width, height * len(some)))
    for number, frame in enumerate(some):
        sheet.paste(frame, (0, number * height))
    palette = sheet.quantize(COLORS)
    return [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the films. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Films the bundled scenes for docs/gallery.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of scenes (default: all)")
    names = parser.parse_args(argv).names or list(FILMS)
    folder = REPOSITORY / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        for name in names:
            path = Path(scratch, f"{name}.gif")
            record(name, FILMS[name], path)
            print(f"{name}: {shrink(path, folder / path.name) / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
