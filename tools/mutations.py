"""Breaks one rule of the packages at a time and records which test notices.

    python tools/mutations.py run                            # all, into mutations_killed.jsonl beside this file
    python tools/mutations.py run --new                      # those that the record lacks
    python tools/mutations.py run --only gae- detach         # those whose names contain one of these words
    python tools/mutations.py run --killed-by tests/chaos    # those whose recorded test lies in a folder or file
    python tools/mutations.py survivors                      # those that no test noticed when they were last run

``mutations.yaml`` lists the mutations by file: a text that occurs once in the file, the text in its place, the broken
rule, and further tests beside those of the file's own name. A mutation is made in a copy of this
checkout, in a temporary folder. Tests run until the first failure: the one that was recorded last; unit tests that
belong to the file, that import it, and that lie in the mirroring folder under ``tests``; then processes and probes of
the first kind, and of a few of the second. In the end each test that noticed a mutation runs without one,
where it must pass.

A line of the record is a mutation: its name, whether it was killed, the first test that failed, and the seconds this
took. Before tests are deleted, run the mutations that they kill; afterwards run them again with ``--killed-by``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any

REPOSITORY = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".yaml")
RECORD = TABLE.with_name("mutations_killed.jsonl")

TIMED_OUT, INTERRUPTED = "timed out", "interrupted"
"""How a run of tests may end without the name of one: a mutation may break the handling of signals and exits, too."""

TIMEOUT_S = 120
"""Of a test. A mutation may make a loop endless."""

_MOST_USERS = 8
"""Files of tests that import a module, of which processes and probes run as well."""
_KINDS = "not thorough and not chaos and not conformance and not network and not learning"
_PYTEST = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", f"--timeout={TIMEOUT_S}")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_WRONG_USAGE, _NOTHING_COLLECTED = 4, 5
"""Exit codes of pytest."""

_FORKS = """
import importlib, json, os, sys, pytest
for name in sys.argv[1:]:
    importlib.import_module(name)
sys.path.insert(0, os.getcwd())
for line in sys.stdin:
    given = json.loads(line)
    if not (child := os.fork()):
        output = os.open(given["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(output, 1), os.dup2(output, 2)
        code = pytest.main(given["arguments"])
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has loaded what tests need, none of it ours, and forks for each run: loading takes most of one."""


class Failure(Exception):
    """The error, in words for the user."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule broken, by a text of one file that is replaced."""

    name: str
    file: str
    old: str
    new: str
    rule: str
    """The broken rule."""
    tests: tuple[str, ...] = ()
    """Files, folders or ids of tests that belong to it."""

    def near_tests(self) -> list[str]:
        """The tests named, and those of the file's own name."""
        path = Path("tests", self.file)
        own = path.with_name(f"test_{path.name.lstrip('_')}")
        return [*self.tests, *([str(own)] if (REPOSITORY / own).exists() else [])]

    def folder_of_tests(self) -> list[str]:
        """The tests in the folder that mirrors the file's folder."""
        folder = Path("tests", self.file).parent
        return sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / folder).glob("test_*.py"))

    def importing_tests(self) -> list[str]:
        """The tests that import the file's module."""
        module = re.compile(rf"\b{re.escape('.'.join(Path(self.file).with_suffix('').parts))}\b")
        found = (path for path, text in _texts_of_tests().items() if module.search(text))
        return sorted(str(path.relative_to(REPOSITORY)) for path in found)

    def apply(self, text: str) -> str:
        """The text of the file with the rule broken.

        Raises:
            Failure: the old text does not occur exactly once.
        """
        if (found := text.count(self.old)) != 1:
            raise Failure(f"{self.name}: expected its old text once in '{self.file}', found it {found} times")
        return text.replace(self.old, self.new)


@cache
def _texts_of_tests() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in REPOSITORY.glob("tests/**/test_*.py")}


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the record."""

    name: str
    outcome: str
    """``killed`` or ``survived``."""
    test: str
    """The first test that failed; empty where none did."""
    seconds: float


def read_table(path: Path = TABLE) -> list[Mutation]:
    """The mutations of the table, in its order.

    Raises:
        Failure: two have one name.
    """
    import yaml

    table: Mapping[str, Sequence[Mapping[str, Any]]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    mutations = [
        Mutation(**{**row, "file": file, "tests": tuple(row.get("tests", ()))})
        for file, rows in table.items()
        for row in rows
    ]
    names = [mutation.name for mutation in mutations]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Failure(f"two mutations have the name {', '.join(twice)}")
    return mutations


def read_record(path: Path = RECORD) -> dict[str, Result]:
    """The last result of each mutation, by name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [Result(**json.loads(line)) for line in lines]
    return {result.name: result for result in results}


def write_record(results: Mapping[str, Result], path: Path = RECORD) -> None:
    """Writes the results in the order of their names, a line each."""
    lines = [json.dumps(asdict(results[name]), ensure_ascii=False) + "\n" for name in sorted(results)]
    path.write_text("".join(lines), encoding="utf-8")


class Checkout:
    """A copy of this checkout in a folder, where tests run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._edits = count(1)
        self._forks: dict[str, subprocess.Popen[str]] = {}
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
        libraries = (REPOSITORY / "trainer_service").rglob("*.so")  # the compiled kernel
        paths = [Path(name) for name in filter(None, listed.split("\0"))]
        for path in (*paths, *(library.relative_to(REPOSITORY) for library in libraries)):
            if (REPOSITORY / path).is_file():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / path, folder / path)

    @classmethod
    @contextmanager
    def copied(cls) -> Iterator[Checkout]:
        """A copy in a temporary folder, which is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="mutations-", ignore_cleanup_errors=True) as folder:
            checkout = cls(Path(folder))
            try:
                yield checkout
            finally:
                for process in checkout._forks.values():
                    process.kill()
                    process.communicate()

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """Breaks a rule until the block ends."""
        path = self._folder / mutation.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutation.apply(text), encoding="utf-8")
        # Byte code is kept by size and whole seconds of the source's time: each edit needs its own.
        os.utime(path, (times.st_atime, times.st_mtime + next(self._edits)))
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, (times.st_atime, times.st_mtime))

    def first_failure(self, tests: Sequence[str], marks: str) -> str:
        """The id of the first of these tests that fails, ``timed out`` where pytest was ended, or nothing.

        Raises:
            Failure: pytest could not run.
        """
        if not (there := [test for test in tests if (self._folder / test.partition("::")[0]).exists()]):
            return ""
        output = self._folder / "mutations.log"
        process = self._process("torch" if any("trainer_service" in test for test in there) else "numpy")
        assert process.stdin
        assert process.stdout
        arguments = [*_PYTEST, "-m", marks, *there]
        process.stdin.write(json.dumps({"output": str(output), "arguments": arguments}) + "\n")
        process.stdin.flush()
        code, said = int(process.stdout.readline()), output.read_text(encoding="utf-8", errors="replace")
        if code in (0, _NOTHING_COLLECTED):
            return ""
        if failed := _FAILED.search(said):
            return failed.group(1)
        if "Timeout" in said or code < 0:
            return TIMED_OUT
        if code != _WRONG_USAGE:
            return INTERRUPTED
        raise Failure(f"pytest {' '.join(arguments)} ended with {code}:\n{said[-2000:]}")

    def _process(self, module: str) -> subprocess.Popen[str]:
        """The process that forks for runs, with a module loaded."""
        if module not in self._forks:
            search = os.pathsep.join(filter(None, (str(self._folder), os.environ.get("PYTHONPATH"))))
            own = {"PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
            self._forks[module] = subprocess.Popen(
                [sys.executable, "-c", _FORKS, module, "grpc"],
                cwd=self._folder, env={**os.environ, **own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        return self._forks[module]


def judge(checkout: Checkout, mutation: Mutation, last: Result | None, *, units: bool) -> Result:
    """Runs the tests of a mutation in the copy, or a first choice of unit tests alone."""
    began = time.perf_counter()
    near = mutation.near_tests()
    users = [test for test in mutation.importing_tests() if test not in near]
    rest = [test for test in mutation.folder_of_tests() if test not in (*near, *users)]
    chosen_tests = (near, users) if units and (near or users) else (near, users, rest)
    stages = [(tests, f"unit and {_KINDS}") for tests in chosen_tests]
    if not units:
        stages.append(([*near, *users[:_MOST_USERS]], f"not unit and {_KINDS}"))
    recorded = [last.test] if last and last.test else []
    failed = ""
    with checkout.mutated(mutation):
        for tests, marks in ((recorded, _KINDS), *stages):
            try:
                failed = checkout.first_failure(tests, marks)
            except Failure:
                if tests is not recorded:  # which may have another name by now
                    raise
            if failed:
                break
    seconds = round(time.perf_counter() - began, 1)
    return Result(mutation.name, "killed" if failed else "survived", failed, seconds)


def run(mutations: Sequence[Mutation], jobs: int, record: Path, *, units: bool = False) -> int:
    """Judges mutations and brings the record up to date. Returns how many survived.

    units: unit tests alone, of the file and of its importers; what they do not notice is not recorded.

    Raises:
        Failure: a text is not where it was, or a test fails without a mutation as well.
    """
    for mutation in mutations:
        mutation.apply((REPOSITORY / mutation.file).read_text(encoding="utf-8"))
    results, judged = read_record(record), list[Result]()
    free: Queue[Checkout] = Queue()

    def one(mutation: Mutation) -> Result:
        checkout = free.get()
        try:
            return judge(checkout, mutation, results.get(mutation.name), units=units)
        finally:
            free.put(checkout)

    with ExitStack() as stack:
        for _ in range(jobs):
            free.put(stack.enter_context(Checkout.copied()))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for ended in as_completed([pool.submit(one, mutation) for mutation in mutations]):
            result = ended.result()
            judged.append(result)
            if result.test or not units:
                results[result.name] = result
                write_record(results, record)
            print(f"{result.outcome:8} {result.seconds:6.1f} s  {result.name}  {result.test}", flush=True)
        killers = sorted({result.test for result in judged} - {"", TIMED_OUT, INTERRUPTED})
        if killers and (broken := free.get().first_failure(killers, _KINDS)):
            raise Failure(f"'{broken}' fails without a mutation as well")
    survived = sum(result.outcome == "survived" for result in judged)
    print(f"{len(judged) - survived} of {len(judged)} mutations were killed.")
    return survived


def chosen(
    mutations: Sequence[Mutation],
    results: Mapping[str, Result],
    only: Sequence[str],
    killed_by: Sequence[str],
) -> list[Mutation]:
    """The mutations whose names contain one of some words, and whose recorded test lies in one of some paths."""

    def lies_there(name: str) -> bool:
        test = results[name].test if name in results else ""
        return any(test == path or test.startswith((f"{path}/", f"{path}::")) for path in killed_by)

    return [
        mutation
        for mutation in mutations
        if (not only or any(word in mutation.name for word in only))
        and (not killed_by or lies_there(mutation.name))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 where a mutation survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "survivors"))
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="mutations with it in their names"
    )
    parser.add_argument(
        "--killed-by", nargs="+", default=[], metavar="PATH", help="mutations whose recorded test lies there"
    )
    parser.add_argument("--new", action="store_true", help="mutations that the record lacks")
    parser.add_argument("--units", action="store_true", help="by unit tests alone, a quick first pass")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="beside each other (default 1)")
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help="where results are kept")
    parsed = parser.parse_args(arguments)
    try:
        results = read_record(parsed.record)
        if parsed.command == "survivors":
            print("\n".join(name for name, result in results.items() if result.outcome == "survived"))
            return 0
        paths = [path.rstrip("/") for path in parsed.killed_by]
        mutations = chosen(read_table(), results, parsed.only, paths)
        if parsed.new:
            mutations = [mutation for mutation in mutations if mutation.name not in results]
        return int(run(mutations, parsed.jobs, parsed.record, units=parsed.units) > 0)
    except (Failure, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
