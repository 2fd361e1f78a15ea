"""Runs on a scene in a Python file: from the command line, from Python, and with a mistake in it."""

from __future__ import annotations

from pathlib import Path

import page_blocks
import pytest

import trainer_service
from unity_bridge.errors import SimulatorLost

pytestmark = pytest.mark.process

PAGE = page_blocks.REPOSITORY / "docs" / "scenes-in-python.md"
SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 64, "buffer_size": 320},
    "max_steps": 640,
    "summary_freq": 320,
}


@pytest.fixture
def scene(workplace: Path) -> Path:
    """The file of the page."""
    (source,) = [block.text for block in page_blocks.blocks_of(PAGE) if block.name == "my_scene.py"]
    (workplace / "my_scene.py").write_text(source)
    return workplace / "my_scene.py"


def test_a_mistake_ends_the_run_with_its_line(scene: Path, mlagents_style, configure) -> None:
    configure("Walker")
    text = scene.read_text()
    scene.write_text(text.replace("rewards[done] = 0", "rewards[2] = np.nan"))
    with pytest.raises(SimulatorLost, match=r"step.*: rewards of agent 2: expected a finite number, got nan"):
        trainer_service.train(SETTINGS, env="./my_scene.py:MyScene", run_id="nan", verbose=0)
    scene.write_text(text.replace("def step(", "def stepp("))
    said = mlagents_style("learn", "config.yaml", "--env=my_scene.py:MyScene", "--run-id=none")
    assert said.code == 2
    assert "MyScene has no method step(actions); a scene needs behaviors, reset and step" in said.err
    assert "Traceback" not in said.err
