"""Compiles ``ppo_update.c`` into a shared library in the same folder, with the installed C compiler.

Installing from source runs this. After installing a wheel for any platform, run it yourself:
``python -m trainer_service.learning.kernels.compiled.build``. It imports only the standard library, since nothing else
is installed while a wheel is built.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("ppo_update.c")
LIBRARY = SOURCE.with_name("ppo_update.so")

WANTED = "TRAINER_SERVICE_COMPILE"
"""The environment variable that disables compilation if it is 0, and demands it of a wheel if it is 1."""

_AVX2 = ("-mavx2", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mprefer-vector-width=512")
_X86 = {
    "avx2": (*_AVX2, "-DLANES=8", "-DTILE_ROWS=6", "-DTILE_COLUMNS=2"),
    "avx512": (*_AVX512, "-DLANES=16", "-DTILE_ROWS=8", "-DTILE_COLUMNS=2"),
}
_ARM = {"neon": ("-DLANES=4", "-DTILE_ROWS=4", "-DTILE_COLUMNS=4")}
INSTRUCTION_SETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "x86_64": _X86, "aarch64": _ARM, "arm64": _ARM,
}  # fmt: skip
"""Compiler flags of each instruction set, by ``platform.machine()``. Tiles are as large as the registers permit."""

_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-pthread", "-fno-math-errno", "-fno-trapping-math")
OLDEST_MACOS = "11.0"
_TIMEOUT_S = 120


class BuildError(Exception):
    """The kernel cannot be compiled here. The message is one line."""


def processor() -> str:
    """Returns the kind of processor that this Python runs on."""
    return platform.machine().lower()


def source_digest() -> int:
    """Returns a checksum of the source, which identifies the libraries built from it."""
    sources = [SOURCE, *sorted(SOURCE.parent.glob("*.h"))]
    return zlib.crc32(b"".join(path.read_bytes() for path in sources))


def build(library: Path = LIBRARY) -> None:
    """Compiles the source to ``library``, for every instruction set of this kind of processor.

    Raises BuildError if that is impossible. Then nothing is written.
    """
    if os.environ.get(WANTED) == "0":
        raise BuildError(f"{WANTED}=0 is set in the environment")
    if sys.platform == "win32":
        raise BuildError("on Windows it is not built")
    sets = INSTRUCTION_SETS.get(processor())
    if sets is None:
        raise BuildError(f"it has no code for processors of the kind {processor()}")
    compiler = _compiler()
    if sys.platform == "darwin":
        compiler += ["-arch", processor(), f"-mmacosx-version-min={OLDEST_MACOS}"]
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder, f"{name}.o") for name in ("which", *sets)]
        _run(
            [
                *compiler,
                *_FLAGS,
                f"-DSOURCE_DIGEST={source_digest()}u",
                "-c",
                str(SOURCE),
                "-o",
                str(objects[0]),
            ]
        )
        for (name, flags), path in zip(sets.items(), objects[1:], strict=True):
            _run([*compiler, *_FLAGS, *flags, f"-DSUFFIX={name}", "-c", str(SOURCE), "-o", str(path)])
        linked = Path(folder, library.name)
        _run([*compiler, "-shared", "-pthread", "-o", str(linked), *map(str, objects)])
        # Renamed, since a process may have the old file open.
        partial = library.with_name(f"{library.name}.{os.getpid()}")
        shutil.copyfile(linked, partial)
        partial.replace(library)


def _compiler() -> list[str]:
    """Returns the command of the C compiler: ``CC`` if it is set, otherwise the first one found."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    found = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if found is None:
        raise BuildError("there is no C compiler (cc, gcc or clang)")
    return [found]


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()] or ["no message"]
        raise BuildError(f"{command[0]} failed: {said[0].strip()[:200]}")


def main(arguments: Sequence[str]) -> int:
    """Compiles the kernel for this installation and prints one line. ``--check`` does nothing if a library exists."""
    checks = "--check" in arguments
    if checks and LIBRARY.is_file():
        return 0
    try:
        build()
    except (BuildError, OSError) as error:
        print(f"No compiled kernel: {error}. Everything works without it; updates take longer.")
        return 0 if checks else 1
    print(f"Compiled kernel: {LIBRARY}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
