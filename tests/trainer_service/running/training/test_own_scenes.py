"""Runs on a scene in a Python file: from the command line, from Python, and with a mistake in it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

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


def test_a_scene_of_a_file_is_trained_on_and_scored(scene: Path, mlagents_style: Any, configure: Any) -> None:
    configure("Walker", max_steps=90)
    flags = ("--run-id=w", "--isolate", "--env-args", "--env-kwargs", '{"agents": 3}')
    said = mlagents_style("learn", "config.yaml", "--env=./my_scene.py:MyScene", *flags)
    assert said.code == 0, said.err
    assert "Connected to environment './my_scene.py:MyScene'" in said.out
    said = mlagents_style("evaluate", "w", "--episodes=2", "--max-episode-steps=5")
    assert "over 2 episodes" in said.out


def test_an_object_of_the_class_is_trained_on_and_scored(scene: Path) -> None:
    spec = importlib.util.spec_from_file_location("my_scene", scene)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = trainer_service.train(SETTINGS, env=module.MyScene(), run_id="object")
    assert run.steps["Walker"] >= 640
    made = module.MyScene(agents=3)
    assert len(trainer_service.evaluate(run, made, episodes=4)["Walker"].returns) == 4


def test_a_mistake_ends_the_run_with_its_line(scene: Path, mlagents_style: Any, configure: Any) -> None:
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
