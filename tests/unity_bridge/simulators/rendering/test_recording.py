from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unity_bridge.simulators.rendering import films
from unity_bridge.simulators.rendering.captions import LEAST_WIDTH, caption_height, captioned
from unity_bridge.simulators.rendering.films import recording_problem
from unity_bridge.simulators.rendering.recording import LONGEST_S, BestEpisodeRecorder, FilmRecorder
from unity_bridge.simulators.scene import Steps, concatenate, step_batch

NOTHING: Steps = {}
needs_ffmpeg = pytest.mark.skipif(
    importlib.util.find_spec("imageio_ffmpeg") is None, reason="the extra video is not installed"
)


class Fading:
    """Every picture is a little brighter than the one before."""

    frame_s = 0.25

    def __init__(self, frame_s: float = 0.25, size: tuple[int, int] = (8, 6)) -> None:
        self.frame_s = frame_s
        self.size = size
        self.drawn = 0

    def render(self) -> np.ndarray:
        self.drawn += 1
        return np.full((*self.size, 3), 2 * self.drawn % 256, np.uint8)


def steps_of(asking: Sequence[int], ended: Sequence[int] = (), behavior: str = "B?team=0") -> Steps:
    """A message of agents that ended and agents that ask for actions."""

    def rows(agents: Sequence[int], over: bool):
        zeros = np.zeros((len(agents), 1), np.float32)
        ids = np.array(agents, np.int64)
        return step_batch([zeros], zeros[:, 0], agent_ids=ids, terminated=np.full(len(agents), over))

    return {behavior: concatenate(rows(ended, True), rows(asking, False))}


def frames_of(path: Path, size: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The frames of a film, [frames, H, W, 3]; the size of an MP4 must be known."""
    if path.suffix == ".gif":
        with Image.open(path) as picture:
            shown = []
            for i in range(picture.n_frames):
                picture.seek(i)
                shown.append(np.asarray(picture.convert("RGB")))
            return np.stack(shown)
    line = [ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = np.frombuffer(subprocess.run(line, capture_output=True, check=True).stdout, np.uint8)
    return pixels.reshape(-1, *size, 3)


def brightness(frame: np.ndarray) -> int:
    """The one value of a picture of ``Fading``."""
    return int(frame[0, LEAST_WIDTH // 2, 0])


def captions_of(path: Path) -> np.ndarray:
    """The captions of a film, [frames, H, W, 3]."""
    return frames_of(path)[:, -caption_height(2) :]


def assert_captions(path: Path, expected: Sequence[tuple[str, str]]) -> None:
    """Compares the captions of a film of 300 pixels with these."""
    for shown, lines in zip(captions_of(path), expected, strict=True):
        text = captioned(np.zeros((20, 300, 3), np.uint8), lines)[20:]
        assert np.abs(shown.astype(int) - text).max() < 16  # a GIF has few colors
        assert (shown.min(axis=2) < 128).any()  # some of it is ink


def ffmpeg() -> str:
    import imageio_ffmpeg

    return str(imageio_ffmpeg.get_ffmpeg_exe())


def test_every_capture_is_a_frame_of_the_scenes_own_length(tmp_path: Path) -> None:
    path = tmp_path / "fading.gif"
    recorder = FilmRecorder(Fading(), path)
    for _ in range(3):
        recorder.capture(NOTHING)
    assert recorder.save() == 3
    with Image.open(path) as picture:
        assert picture.size == (LEAST_WIDTH, 8 + caption_height(2))
        assert (picture.n_frames, picture.info["duration"]) == (3, 250)
    assert [brightness(frame) for frame in frames_of(path)] == [2, 4, 6]
    assert list(tmp_path.iterdir()) == [path]


@needs_ffmpeg
@pytest.mark.parametrize("size", [(33, 251)])
@pytest.mark.process
def test_an_mp4_shows_the_same(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "fading.mp4"
    recorder = FilmRecorder(Fading(size=size), path)
    for _ in range(30):
        recorder.capture(NOTHING)
    assert recorder.save() == 30
    height = size[0] + caption_height(2)
    shown = frames_of(path, (height + height % 2, size[1] + size[1] % 2))[:, : size[0]]
    assert len(shown) == 30
    assert np.abs(shown.mean(axis=(1, 2, 3)) - 2.0 * np.arange(1, 31)).max() < 6  # H.264 is not exact
    assert list(tmp_path.iterdir()) == [path]
    steps = subprocess.run([ffmpeg(), "-i", str(path)], check=False, capture_output=True, text=True).stderr
    assert "h264" in steps
    assert " 4 fps" in steps


def test_a_recording_ends_after_thirty_seconds(tmp_path: Path) -> None:
    scene = Fading()
    recorder = FilmRecorder(scene, tmp_path / "long.gif")
    for _ in range(200):
        recorder.capture(NOTHING)
    assert scene.drawn == LONGEST_S / scene.frame_s == 120
    assert recorder.save() == 120


@pytest.mark.parametrize(("frame_s", "every", "duration_ms"), [(0.01, 2, 20), (0.004, 5, 20), (0.02, 1, 20)])
def test_too_quick_frames_are_left_out_at_true_speed(
    tmp_path: Path, frame_s: float, every: int, duration_ms: int
) -> None:
    path = tmp_path / "quick.gif"
    recorder = FilmRecorder(Fading(frame_s), path)
    for _ in range(20):
        recorder.capture(NOTHING)
    assert recorder.save() == 20 // every
    with Image.open(path) as picture:
        assert picture.info["duration"] == duration_ms


def test_so_many_episodes_of_the_first_agent_are_recorded(tmp_path: Path) -> None:
    recorder = FilmRecorder(Fading(), tmp_path / "episodes.gif", episodes=2)
    recorder.capture({"Empty?team=0": steps_of([])["B?team=0"]})
    recorder.capture(steps_of([3, 5]))
    recorder.capture(steps_of([3, 5], ended=[5]))  # another's episode
    recorder.capture(steps_of([3, 5], ended=[3]))  # the second begins
    recorder.capture(steps_of([3], behavior="Other?team=0", ended=[3]))
    recorder.capture(steps_of([5], ended=[3]))  # dead, while its group lives on
    recorder.capture(steps_of([5]))
    recorder.capture(steps_of([3, 5]))  # the third begins
    recorder.capture(steps_of([3, 5]))
    assert recorder.save() == 7


def paid(steps: Steps, *rewards: float) -> Steps:
    """Steps with these rewards, row by row."""
    ((behavior, batch),) = steps.items()
    return {behavior: replace(batch, rewards=np.array(rewards, np.float32))}


@pytest.mark.parametrize(("last", "shown"), [(5.0, [8, 10, 10]), (1.0, [2, 4, 6])])
def test_the_best_episode_of_the_first_agent_is_kept(tmp_path: Path, last: float, shown: list[int]) -> None:
    path = tmp_path / "best.gif"
    recorder = BestEpisodeRecorder(Fading(), path)
    recorder.capture(paid(steps_of([3, 5]), 0, 50))
    recorder.capture(paid(steps_of([3, 5]), 1, 0))
    recorder.capture(paid(steps_of([5], ended=[3]), 2, 0))  # a return of 3
    recorder.capture(paid(steps_of([3, 5]), 9, 0))  # it comes back; what it earned in between is not its
    recorder.capture(steps_of([3, 5]))
    recorder.capture(paid(steps_of([3], ended=[3]), last, 0))
    recorder.capture(paid(steps_of([3]), 100))  # does not end
    assert recorder.save() == len(shown)
    assert [brightness(frame) for frame in frames_of(path)] == shown
    assert list(tmp_path.iterdir()) == [path]


def test_a_caption_shows_step_return_and_outcome(tmp_path: Path) -> None:
    path = tmp_path / "captions.gif"
    recorder = FilmRecorder(Fading(size=(20, 300)), path, episodes=2)
    recorder.capture(paid(steps_of([3, 5]), 9, 9))
    recorder.capture(paid(steps_of([3, 5]), 1.5, 9))
    recorder.capture(paid(steps_of([3, 5], ended=[3]), -2, 7, 9))  # the second begins, too
    recorder.capture(paid(steps_of([3]), 4))
    cut = paid(steps_of([3, 5], ended=[3]), 1, 7, 9)["B?team=0"]
    rows = {"terminated": np.zeros(3, np.bool_), "truncated": np.array([True, False, False])}
    recorder.capture({"B?team=0": replace(cut, **rows)})
    assert recorder.save() == 5
    expected = [
        ("episode 1   step 0   return 0.000", ""),
        ("episode 1   step 1   return 1.500", ""),
        ("episode 1   step 2   return -0.500", "episode 1: return -0.500, terminated"),
        ("episode 2   step 1   return 4.000", "episode 1: return -0.500, terminated"),
        ("episode 2   step 2   return 5.000", "episode 2: return 5.000, time limit"),
    ]
    assert_captions(path, expected)
    assert brightness(frames_of(path)[-1]) == brightness(
        frames_of(path)[-2]
    )  # the end is shown on what was there


@pytest.mark.parametrize("suffix", [".gif", pytest.param(".mp4", marks=needs_ffmpeg)])
@pytest.mark.process
def test_failed_recording_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"taken{suffix}"
    path.mkdir()
    recorder = FilmRecorder(Fading(), path)
    recorder.capture(NOTHING)
    with pytest.raises(OSError, match="taken"):
        recorder.save()
    assert list(tmp_path.iterdir()) == [path]


def test_unusable_recording_paths_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recording_problem(tmp_path / "walk.GIF") is None
    assert recording_problem(Path("walk.png")) == "expected a .gif or .mp4 file, got 'walk.png'"
    assert "there is no folder" in str(recording_problem(tmp_path / "nowhere" / "walk.gif"))
    monkeypatch.setattr(films.importlib.util, "find_spec", lambda name: None)
    assert 'pip install -e ".[video]"' in str(recording_problem(tmp_path / "walk.mp4"))
