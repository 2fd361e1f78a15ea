"""The real ML-Agents trainer, in an environment of its own beside ours: its pins and ours exclude each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".peer"
"""Where it is installed, unless the user has one already."""

_STEP_TIMEOUT_S = 1800.0
_LAST_LINES = 4

Say = Callable[[str], None]


class PeerError(Exception):
    """The trainer cannot be run here. The text says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What pip is told, one tuple of arguments per call."""

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
        python = next(_interpreters(recipe.python), None)
        if python is None:
            refusals.append(f"no Python {_dotted(recipe.python)} found")
            continue
        say(f"Installing mlagents 1.1.0 with {python} into {environment} (once; some minutes) ...")
        try:
            _install(recipe, python, environment, folder / "install.log", say)
        except PeerError as error:
            refusals.append(str(error))
            continue
        finished.write_text(f"{python}\n", encoding="utf-8")
        return environment
    raise PeerError("; ".join(refusals))


def describe(environment: Path) -> str:
    """Which trainer of which environment is run, and what to think of it."""
    version = _version_of(environment / "bin" / "python")
    if version is None:
        return f"mlagents-learn of {environment}"
    warning = (
        "" if version <= (3, 10) else " - slower than on 3.10, where its protobuf is C++: ratios flatter us"
    )
    return f"mlagents-learn of {environment}, Python {_dotted(version)}{warning}"


def _install(recipe: Recipe, python: Path, environment: Path, log: Path, say: Say) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _run([str(python), "-m", "venv", str(environment)], log)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    for number, arguments in enumerate(recipe.installs, 1):
        say(f"  {number}/{len(recipe.installs)}: pip install {' '.join(arguments)}")
        _run([*pip, *arguments], log)
    _run([str(learn_command(environment)), "--help"], log)


def _run(command: Sequence[str], log: Path) -> None:
    """Raises PeerError, with the last lines of its output, if the command fails."""
    # A path that was set for our packages must not lead pip or mlagents-learn to them.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        with log.open("ab") as output:
            subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean,
                timeout=_STEP_TIMEOUT_S,
                check=True,
            )
    except (subprocess.SubprocessError, OSError) as error:
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        reason = "\n    ".join([f"{error}", *said])
        raise PeerError(f"installation failed (all of it is in {log}):\n    {reason}") from error


def _interpreters(version: tuple[int, int]) -> Iterator[Path]:
    """Interpreters of this version that start, the likeliest first."""
    return (path for path in _candidates(version) if _version_of(path) == version)


def _candidates(version: tuple[int, int]) -> Iterator[Path]:
    name = _dotted(version)
    yield Path(sys.executable)
    if found := shutil.which(f"python{name}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{name}.*/bin/python"), reverse=True)
    if uv := shutil.which("uv"):
        found = _output_of([uv, "python", "find", name])
        if not found and _output_of([uv, "python", "install", name]) is not None:
            found = _output_of([uv, "python", "find", name])
        if found:
            yield Path(found)


def _version_of(python: Path) -> tuple[int, int] | None:
    said = _output_of([str(python), "-c", "import sys; print(*sys.version_info[:2])"])
    if not said:
        return None
    major, minor = said.split()
    return int(major), int(minor)


def _output_of(command: Sequence[str]) -> str | None:
    """What it prints, stripped; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.strip()


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
