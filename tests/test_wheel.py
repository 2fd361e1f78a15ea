"""The wheel runs where nothing else of this repository is: from an empty folder, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import page_blocks
import pytest

pytestmark = [pytest.mark.network, pytest.mark.thorough, pytest.mark.timeout(600)]

CONFIG = """
behaviors:
  Basic:
    hyperparameters: {batch_size: 32, buffer_size: 128}
    network_settings: {hidden_units: 8, num_layers: 1}
    trainer_type: ppo
    max_steps: 300
"""


def said(command: Sequence[str | Path], folder: Path, **more: str) -> str:
    """What a command says in a folder, where no checkout is on the path; it must succeed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def scripts(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment: the wheel is its own, what that needs is borrowed from ours."""
    place = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", f"--wheel-dir={place}", str(repository)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        pytest.skip(f"no wheel can be built here: {built.stderr.strip().splitlines()[-1]}")
    (wheel,) = place.glob("*.whl")
    environment = place / "environment"
    said([sys.executable, "-m", "venv", "--without-pip", environment], place)
    paths = sysconfig.get_paths(vars={"base": str(environment), "platbase": str(environment)})
    said([*pip, f"--python={paths['scripts']}/python", "install", "--quiet", "--no-deps", wheel], place)
    Path(paths["purelib"], "borrowed.pth").write_text(sysconfig.get_paths()["purelib"])
    return Path(paths["scripts"])


def test_both_packages_say_that_they_are_typed(scripts: Path, tmp_path: Path) -> None:
    program = (
        "import trainer_service, unity_bridge\nfrom importlib.resources import files\n"
        "for each in (trainer_service, unity_bridge): print(files(each).joinpath('py.typed').is_file(), each.__file__)"
    )
    lines = said([scripts / "python", "-c", program], tmp_path).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["True", "True"]
    assert all(str(scripts.parent) in line for line in lines), "of the wheel, not of the checkout"


def test_a_bundled_configuration_is_found_and_passes_the_doctor(scripts: Path, tmp_path: Path) -> None:
    listed = said([scripts / "mlagents-style", "configs"], tmp_path)
    assert "\n3dball_sac " in listed
    assert "3dball: ok" in said([scripts / "mlagents-style", "check", "3dball"], tmp_path)
    said([scripts / "mlagents-style", "doctor", "basic", "--env=sim:basic"], tmp_path)


def test_a_run_is_trained_and_scored(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(CONFIG)
    learn = ["learn", "own.yaml", "--env=sim:basic", "--run-id=own", "--seed=1"]
    assert "own/Basic/checkpoint.safetensors" in said([scripts / "mlagents-style", *learn], tmp_path).replace(
        "\\", "/"
    )
    score = said([scripts / "mlagents-style", "evaluate", "own", "--episodes", "2"], tmp_path)
    assert "over 2 episodes" in score


@pytest.mark.parametrize("page", page_blocks.WITH_BLOCKS)
def test_the_blocks_of_a_page_run(page: str, scripts: Path, tmp_path: Path) -> None:
    for module in page_blocks.NEEDS:
        pytest.importorskip(module)
    print(said([scripts / "python", page_blocks.__file__, page], tmp_path))
