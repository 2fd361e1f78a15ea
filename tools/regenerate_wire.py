"""Generates ``unity_bridge/wire`` from ``protos/``, or compares the two.

    python tools/regenerate_wire.py            # writes the generated modules
    python tools/regenerate_wire.py --check    # writes nothing; exit status 1 where they differ

The compiler decides which protobuf and grpcio a user needs, and cannot share an environment with newer ones.
So it is pinned here and lives in an environment of its own, made for the occasion.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMPILER = ("grpcio-tools==1.76.0", "mypy-protobuf==5.1.0")
"""Stamps the code for protobuf >= 6.31.1; the floor in pyproject.toml may be higher, never lower."""

REPOSITORY = Path(__file__).resolve().parent.parent
PROTOS = REPOSITORY / "protos"
PACKAGE = Path("unity_bridge/wire")


def make_environment(folder: Path) -> Path:
    """Returns the folder of executables of a fresh virtual environment that holds the compiler."""
    venv.create(folder, with_pip=True)
    executables = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(executables / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *COMPILER], check=True)
    return executables


def generate(executables: Path, target: Path) -> None:
    """Compiles every .proto file to a module and its type stub under ``target``."""
    plugin = executables / ("protoc-gen-mypy.exe" if os.name == "nt" else "protoc-gen-mypy")
    sources = sorted(path.relative_to(PROTOS).as_posix() for path in (PROTOS / PACKAGE).glob("*.proto"))
    command = [str(executables / "python"), "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}"]
    command += [f"--python_out={target}", f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out=quiet:{target}"]
    subprocess.run([*command, *sources], check=True)


def generated(root: Path) -> set[str]:
    """Names of the generated files in the package under ``root``."""
    return {path.name for path in (root / PACKAGE).glob("*_pb2*.py*")}


def differences(fresh: Path) -> list[str]:
    """One line for each file that is missing, left over or different in the repository."""
    expected, present = generated(fresh), generated(REPOSITORY)
    lines = [f"{PACKAGE / name}: missing" for name in sorted(expected - present)]
    lines += [f"{PACKAGE / name}: no .proto file makes it" for name in sorted(present - expected)]
    for name in sorted(expected & present):
        if not filecmp.cmp(fresh / PACKAGE / name, REPOSITORY / PACKAGE / name, shallow=False):
            lines.append(f"{PACKAGE / name}: differs from its .proto file")
    return lines


def install(fresh: Path) -> None:
    """Makes the repository's generated files equal to those under ``fresh``."""
    for name in generated(REPOSITORY) - generated(fresh):
        (REPOSITORY / PACKAGE / name).unlink()
    for name in generated(fresh):
        shutil.copyfile(fresh / PACKAGE / name, REPOSITORY / PACKAGE / name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Generates unity_bridge/wire from protos/.")
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 on a difference")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "generated"
        fresh.mkdir()
        generate(make_environment(Path(scratch) / "environment"), fresh)
        lines = differences(fresh)
        if not arguments.check:
            install(fresh)
            print(f"{len(lines)} files of {PACKAGE} changed")
            return 0
    print("\n".join(lines) if lines else f"{PACKAGE} is what protos/ says")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
