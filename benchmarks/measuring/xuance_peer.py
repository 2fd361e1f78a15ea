"""XuanCe, in an environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from measuring.environments import InstallationFailed, Say, dotted, interpreters, make
from measuring.peer import PeerError

FOLDER = Path(__file__).resolve().parents[1] / ".xuance"
"""Where it is installed, unless the user has one already."""

PYTHONS = ((3, 11), (3, 10))
"""Its possible installers, the first that is found. It wants numpy 1.26, which newer ones have no build of."""

INSTALLS = (("xuance==1.4.4", "mpe2==1.1.1"),)

_VERSIONS = (
    "import sys; from importlib.metadata import version\n"
    "print(*(f'{name} {version(name)}' for name in ('xuance', 'mpe2', 'torch', 'numpy')), sep=', ', end=', ')\n"
    "print('Python', '.'.join(map(str, sys.version_info[:2])))"
)


def prepare(folder: Path = FOLDER, say: Say = print) -> Path:
    """Returns the environment of XuanCe; installs it on the first call, which takes minutes.

    Raises:
        PeerError: no suitable Python, or the installation fails.
    """
    environment, finished = folder / "venv", folder / "installed"
    if finished.exists():
        return environment
    python = next((path for version in PYTHONS for path in interpreters(version)), None)
    if python is None:
        raise PeerError(f"no Python {' or '.join(map(dotted, PYTHONS))} found")
    say(f"Installing XuanCe 1.4.4 with {python} into {environment} (once; some minutes) ...")
    try:
        make(environment, python, INSTALLS, folder / "install.log", say)
    except InstallationFailed as error:
        raise PeerError(str(error)) from error
    finished.write_text(f"{python}\n", encoding="utf-8")
    return environment


def describe(environment: Path) -> str:
    """The versions of packages that the environment has.

    Raises:
        PeerError: it does not have all that is needed.
    """
    python = environment.absolute() / "bin" / "python"
    try:
        done = subprocess.run([str(python), "-c", _VERSIONS], capture_output=True, text=True, check=True)
    except OSError as error:
        raise PeerError(f"{environment} has no bin/python that can be run") from error
    except subprocess.CalledProcessError as error:
        raise PeerError(f"{environment}: {error.stderr.strip().splitlines()[-1]}") from error
    return done.stdout.strip()
