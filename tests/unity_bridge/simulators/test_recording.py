from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unity_bridge.simulators.recording import LONGEST_S, Recorder


class Fading:
    """Every picture is a little brighter than the one before."""

    frame_s = 0.25

    def __init__(self) -> None:
        self.drawn = 0

    def render(self) -> np.ndarray:
        self.drawn += 1
        return np.full((8, 6, 3), 2 * self.drawn, np.uint8)


def test_every_capture_is_a_frame_of_the_scenes_own_length(tmp_path: Path) -> None:
    path = tmp_path / "fading.gif"
    recorder = Recorder(Fading(), path)
    for _ in range(3):
        recorder.capture()
    assert recorder.save() == 3
    with Image.open(path) as picture:
        assert (picture.size, picture.n_frames, picture.info["duration"]) == ((6, 8), 3, 250)
        picture.seek(2)
        assert picture.convert("RGB").getpixel((0, 0)) == (6, 6, 6)
    assert list(tmp_path.iterdir()) == [path]


def test_a_recording_ends_after_thirty_seconds(tmp_path: Path) -> None:
    scene = Fading()
    recorder = Recorder(scene, tmp_path / "long.gif")
    for _ in range(200):
        recorder.capture()
    assert scene.drawn == LONGEST_S / scene.frame_s == 120
    assert recorder.save() == 120


def test_without_a_frame_there_is_no_file(tmp_path: Path) -> None:
    assert Recorder(Fading(), tmp_path / "none.gif").save() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "taken.gif"
    path.mkdir()
    recorder = Recorder(Fading(), path)
    recorder.capture()
    with pytest.raises(OSError, match=r"taken\.gif"):
        recorder.save()
    assert list(tmp_path.iterdir()) == [path]
