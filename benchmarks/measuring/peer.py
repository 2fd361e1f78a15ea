"""The real ML-Agents trainer, in an environment of its own beside ours: its pins and ours exclude each other."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from measuring.environments import InstallationFailed, Say, dotted, interpreters, make, run_logged, version_of

FOLDER = Path(__file__).resolve().parents[1] / ".peer"
"""Where it is installed, unless the user has one already."""


class PeerError(Exception):
    """The trainer cannot be run here. The text says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Arguments of pip, one tuple per call."""

    python: tuple[int, int]
    installs: tuple[tuple[str, ...], ...]


_ANY_PYTHON = "--ignore-requires-python"  # it asks for 3.10.1 to 3.10.12 exactly, and runs on neighbours

RECIPES = (
    # First choice, and the fairest: protobuf 3.20 parses in C++ here, and ten times slower on newer Pythons.
    Recipe(
        (3, 10),
        (
            ("torch==2.2.2",),
            (_ANY_PYTHON, "mlagents==1.1.0", "mlagents-envs==1.1.0", "setuptools<70"),
        ),
    ),
    # Its export to ONNX at the end of a run fails with this torch. Nothing here depends on that.
    Recipe(
        (3, 11),
        (
            ("torch==2.13.0",),
            (
                "numpy==1.23.5", "protobuf==3.20.3", "grpcio", "tensorboard==2.15.*", "onnx==1.15.0", "attrs",
                "cattrs<1.7", "six", "h5py", "huggingface_hub<1", "Pillow", "cloudpickle", "pyyaml", "filelock",
                "setuptools<80",
            ),
            ("--no-deps", _ANY_PYTHON, "mlagents-envs==1.1.0", "mlagents==1.1.0"),
        ),
    ),
)  # fmt: skip


def learn_command(environment: Path) -> Path:
    """Its ``mlagents-learn``.

    Raises:
        PeerError: there is none.
    """
    command = environment.absolute() / "bin" / "mlagents-learn"
    if not os.access(command, os.X_OK):
        raise PeerError(f"{environment} has no bin/mlagents-learn that can be run")
    return command


def prepare(folder: Path = FOLDER, say: Say = print) -> Path:
    """Returns the environment of the real trainer; installs it on the first call, which takes minutes.

    Raises:
        PeerError: no suitable Python, or the installation fails.
    """
    if not sys.platform.startswith("linux"):
        raise PeerError(f"how it looks for programs is known for Linux only, and this is {sys.platform}")
    environment, finished = folder / "venv", folder / "installed"
    if finished.exists():
        return environment
    refusals = []
    for recipe in RECIPES:
        python = next(interpreters(recipe.python), None)
        if python is None:
            refusals.append(f"no Python {dotted(recipe.python)} found")
            continue
        say(f"Installing mlagents 1.1.0 with {python} into {environment} (once; some minutes) ...")
        try:
            make(environment, python, recipe.installs, folder / "install.log", say)
            run_logged([str(learn_command(environment)), "--help"], folder / "install.log")
        except (InstallationFailed, PeerError) as error:
            refusals.append(str(error))
            continue
        finished.write_text(f"{python}\n", encoding="utf-8")
        return environment
    raise PeerError("; ".join(refusals))


def describe(environment: Path) -> str:
    """Which trainer of which environment is run, and what to think of it."""
    version = version_of(environment / "bin" / "python")
    if version is None:
        return f"mlagents-learn of {environment}"
    warning = (
        "" if version <= (3, 10) else " - slower than on 3.10, where its protobuf is C++: ratios flatter us"
    )
    return f"mlagents-learn of {environment}, Python {dotted(version)}{warning}"
