"""Runs the conformance tests: ours against the real ML-Agents 1.1.0, in both directions.

    python tools/conformance.py [arguments for pytest]

The real one gets an environment of its own in benchmarks/.peer, made on the first call, which takes minutes; the
benchmarks use the same. MLAGENTS_PEER=DIR names one that is there already. Where it cannot be made, the reason is
printed, and the exit code is 0; unless this is CI (the variable CI is set) and it could be made before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "benchmarks"))  # scripts, not a package that is installed

from measuring.peer import FOLDER, PeerError, describe, learn_command, prepare  # noqa: E402

VARIABLE = "MLAGENTS_PEER"
TESTS = REPOSITORY / "tests" / "conformance"
STAMP = "could-be-made"
"""In the folder of the environment: says that it once was, and survives a failure to make it again."""


def main(arguments: Sequence[str], environ: Mapping[str, str], folder: Path = FOLDER) -> int:
    """Returns the exit code."""
    named = environ.get(VARIABLE)
    try:
        environment = own(folder) if not named else learn_command(Path(named)).parents[1]
    except PeerError as error:
        if named:
            print(f"{VARIABLE}: {error}")
            return 2
        return excuse(str(error), is_ci=bool(environ.get("CI")), could_be_made=(folder / STAMP).exists())
    print(f"Against {describe(environment)}", flush=True)
    command = [sys.executable, "-m", "pytest", str(TESTS), *arguments]
    variables = {**environ, VARIABLE: str(environment)}
    return subprocess.run(command, cwd=REPOSITORY, env=variables, check=False).returncode


def own(folder: Path) -> Path:
    """The environment in the folder, made if need be. Raises PeerError if it cannot be."""
    environment = prepare(folder)
    (folder / STAMP).touch()
    return environment


def excuse(reason: str, *, is_ci: bool, could_be_made: bool) -> int:
    """Says why there is nothing to test against; returns the exit code."""
    print(f"No conformance tests: the real ML-Agents is not there. {reason}", flush=True)
    if is_ci and could_be_made:
        print("It could be made here before, so this is a failure.", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
