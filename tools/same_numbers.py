"""Whether a change of the code changed a number: short runs of every learner, recorded before it and after it.

    python tools/same_numbers.py record before --code ../checkout-of-old-code
    python tools/same_numbers.py record after
    python tools/same_numbers.py compare before after

``record`` trains what stands in same_numbers.yaml: through the command line, in processes of their own, each with one
simulator, one thread and a fixed seed. Two recordings of the same code on the same machine are equal bit for bit.

``compare`` reads what both left: metrics, scores, lessons, checkpoints and replay buffers. Each number and each tensor
must be in the same place and the same, or in another place and the same: then it was renamed, which is listed. Time is
left out. Of the trainer only its reader of checkpoints is imported, so both recordings must have the format of today.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUNS = Path(__file__).with_suffix(".yaml")
SEED = 7

TIME = frozenset({"wall_s", "steps_per_s"})
"""Keys of times in metrics and scores."""
STATUS = frozenset({"metadata", "creation_time", "file_path", "auxillary_file_paths"})
"""Keys of versions, times and paths in the list of checkpoints."""
FILES = (
    "metrics.jsonl",
    "evaluations.jsonl",
    "run_logs/training_status.json",
    "*/*.safetensors",
    "*/replay.npz",
)
"""The compared files in the folder of a run."""
SAVED = "saved."
"""The beginning of a save's names in a replay buffer: the checkpoint's checksum, and the files of rows."""
MOST_SHOWN = 8
"""Differences of one file that are told in full."""


class Failure(Exception):
    """The error, in words for the user."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number, a text, a tensor or a series, as it is compared and as it is told."""

    digest: str
    shown: str


Values = Mapping[str, Value]
"""The content of a file, by name."""


@dataclass(slots=True)
class Verdict:
    """How two files of the same name, or all of them, differ."""

    differences: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Names of the same value, before and after."""


def record(out: Path, code: Path, only: Sequence[str], jobs: int) -> None:
    """Trains every run, or those named, with the code in a folder, and leaves their results below ``out``.

    Raises:
        Failure: a run has no such name, is there already or failed, or the code that would run is another.
    """
    runs = read_runs()
    if unknown := sorted(set(only) - set(runs)):
        raise Failure(f"no run is called {', '.join(unknown)}; there are {', '.join(runs)}")
    chosen = {name: run for name, run in runs.items() if not only or name in only}
    if there := [name for name in chosen if (out / name).exists()]:
        raise Failure(f"'{out}' holds {', '.join(there)} already: remove them or choose another folder")
    environment = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    _require_code(code, environment)
    began = time.perf_counter()
    failed = []
    with ThreadPoolExecutor(jobs) as pool:
        going = {pool.submit(_train, out / name, run, environment): name for name, run in chosen.items()}
        for ended in as_completed(going):
            try:
                print(f"{going[ended]}: {ended.result():.1f} s", flush=True)
            except Failure as failure:
                failed.append(going[ended])
                print(f"{going[ended]}: {failure}", flush=True)
    if failed:
        raise Failure(f"{len(failed)} of {len(chosen)} runs failed: {', '.join(failed)}")
    print(f"{len(chosen)} runs in {time.perf_counter() - began:.0f} s are in '{out}'")


def read_runs() -> dict[str, dict[str, Any]]:
    """The possible recordings, by name."""
    import yaml

    with RUNS.open(encoding="utf-8") as file:
        return {name: run for name, run in yaml.safe_load(file).items() if not name.startswith(".")}


def _require_code(code: Path, environment: Mapping[str, str]) -> None:
    """Raises Failure unless the trainer of that folder is the one that runs."""
    line = [sys.executable, "-c", "import trainer_service; print(trainer_service.__file__)"]
    said = subprocess.run(line, env=environment, cwd=code, capture_output=True, text=True, check=False)
    if said.returncode or not Path(said.stdout.strip()).is_relative_to(code):
        raise Failure(f"expected the trainer of '{code}', got {said.stdout.strip() or said.stderr.strip()}")


def _train(folder: Path, run: Mapping[str, Any], environment: Mapping[str, str]) -> float:
    """Does one run in a folder that is called like it, and says how many seconds it took."""
    import yaml

    folder.mkdir(parents=True)
    config = {key: value for key, value in run.items() if key not in ("env", "before", "longer")}
    learn = ["learn", "config.yaml", f"--env={run['env']}", f"--run-id={folder.name}"]
    learn = [*learn, "--results-dir=.", f"--seed={SEED}", "--torch-device=cpu"]

    def command(arguments: Sequence[str]) -> None:
        line = [sys.executable, "-m", "trainer_service", *arguments]
        said = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if said.returncode:
            raise Failure(f"{' '.join(line)} ended with {said.returncode}:\n{said.stdout}{said.stderr}")

    def configure() -> None:
        (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

    began = time.perf_counter()
    for arguments in run.get("before", ()):
        command(arguments)
    configure()
    command(learn)
    if "longer" in run:
        for settings in config["behaviors"].values():
            settings["max_steps"] = run["longer"]
        configure()
        command([*learn, "--resume"])
    return time.perf_counter() - began


def compare(old: Path, new: Path, known: Mapping[str, str]) -> int:
    """Tells how two recordings differ. Returns 1 where a value does, 0 where names do at most.

    Raises:
        Failure: there is nothing to compare.
    """
    if not (names := sorted(entry.name for entry in old.iterdir() if (entry / entry.name).is_dir())):
        raise Failure(f"'{old}' holds no run")
    failed = 0
    for name in names:
        verdict = compare_runs(old / name / name, new / name / name, known)
        print(f"{name}: {'DIFFERS' if verdict.differences else 'the same'}")
        for line in verdict.differences:
            print(f"  {name}/{line}")
        for (before, after), count in _counted(verdict.renamed).items():
            print(f"  renamed: {before} -> {after}" + (f" ({count} files)" if count > 1 else ""))
        failed += bool(verdict.differences)
    if added := sorted({entry.name for entry in new.iterdir() if entry.is_dir()} - set(names)):
        print(f"Only in '{new}', compared with nothing: {', '.join(added)}")
    print(f"{len(names) - failed} of {len(names)} runs say the same.")
    return int(failed > 0)


def _counted(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    return {pair: pairs.count(pair) for pair in dict.fromkeys(pairs)}


def compare_runs(old: Path, new: Path, known: Mapping[str, str]) -> Verdict:
    """How the folders of two runs differ.

    Args:
        old, new: what ``learn`` wrote.
        known: parts of names that were renamed on purpose, which are not listed.
    """
    verdict = Verdict()
    if not new.is_dir():
        return Verdict([f" is missing in '{new.parent.parent}'"])
    before, after = _files(old), _files(new)
    if "metrics.jsonl" not in before:
        verdict.differences.append("metrics.jsonl: the old run has none; was it recorded to its end?")
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            where = "missing" if name in before else "new"
            verdict.differences.append(f"{name}: is {where}")
            continue
        values = {_renamed(key, known): value for key, value in _read(before[name]).items()}
        found = match(values, _read(after[name]))
        told = found.differences[:MOST_SHOWN]
        if more := len(found.differences) - len(told):
            told.append(f"and {more} more")
        verdict.differences += [f"{name}: {line}" for line in told]
        verdict.renamed += found.renamed
    return verdict


def match(old: Values, new: Values) -> Verdict:
    """Which values are the same under the same name, which under another, and which are not there any more."""
    changed = [name for name, value in old.items() if name not in new or new[name].digest != value.digest]
    free: dict[str, list[str]] = defaultdict(list)
    for name, value in new.items():
        if name not in old or old[name].digest != value.digest:
            free[value.digest].append(name)
    verdict = Verdict()
    lost: list[str] = []
    # Whose name is gone chooses first: what has kept its name, but not its value, is more likely to have changed.
    for name in sorted(changed, key=lambda each: each in new):
        candidates = free[old[name].digest]
        if not candidates:
            lost.append(name)
            continue
        after = min(candidates, key=lambda each: (_distance(name, each), each))
        candidates.remove(after)
        verdict.renamed.append((name, after))
    added = {name for names in free.values() for name in names}
    for name in sorted(lost):
        came = f"{new[name].shown}" if name in new else "no such value under any name"
        verdict.differences.append(f"{name}: expected {old[name].shown}, came {came}")
    verdict.differences += [
        f"{name}: expected nothing of the kind, came {new[name].shown}" for name in sorted(added - set(lost))
    ]
    verdict.renamed.sort()
    return verdict


def _distance(name: str, other: str) -> int:
    """How many parts of two names are not shared, so that of several equal values the likeliest is taken."""
    parts, others = name.split("/"), other.split("/")
    return -sum(part in others for part in parts) + abs(len(parts) - len(others))


def _renamed(name: str, known: Mapping[str, str]) -> str:
    for before, after in known.items():
        name = name.replace(before, after)
    return name


def _files(run: Path) -> dict[str, Path]:
    found = {path for pattern in FILES for path in run.glob(pattern)}
    return {str(path.relative_to(run)): path for path in found}


def _read(path: Path) -> dict[str, Value]:
    readers: Mapping[str, Callable[[Path], dict[str, Value]]] = {
        ".jsonl": read_series,
        ".json": read_status,
        ".safetensors": read_checkpoint,
        ".npz": read_arrays,
    }
    try:
        return readers[path.suffix](path)
    except (OSError, ValueError, RuntimeError) as error:
        raise Failure(f"'{path}' cannot be read: {error}") from error


def read_series(path: Path) -> dict[str, Value]:
    """The values of metrics or scores: for each behavior and tag the values with their steps."""
    series: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        for tag, value in said.items():
            if tag not in TIME:
                series[f"{said['behavior']}/{tag}"].append((said["step"], value))
    return {
        name: Value(_hash(repr(points).encode()), ", ".join(f"{value!r} at {step}" for step, value in points))
        for name, points in series.items()
    }


def read_status(path: Path) -> dict[str, Value]:
    """Returns and lessons in the list of checkpoints."""
    return _plain(json.loads(path.read_text(encoding="utf-8")), STATUS)


def read_checkpoint(path: Path) -> dict[str, Value]:
    """Every tensor, number and text of a checkpoint, by the keys that lead to it."""
    import torch

    from trainer_service.errors import UserError
    from trainer_service.running.runs.checkpoint import read_content

    def described(leaf: Any) -> Value:
        if isinstance(leaf, torch.Tensor):
            return _array(leaf.detach().contiguous().numpy())
        return _scalar(leaf)

    try:
        content = read_content(path)
    except UserError as error:
        raise Failure(str(error)) from error
    return {name: described(leaf) for name, leaf in leaves(content)}


def read_arrays(path: Path) -> dict[str, Value]:
    """Every array of a replay buffer, whose columns of rows are put together from the files beside it."""
    import numpy as np

    with np.load(path) as file:
        arrays = dict(file)
    for listed in [name for name in arrays if name.startswith(f"{SAVED}rows.")]:
        kind = listed.removeprefix(f"{SAVED}rows.")
        blocks = []
        for first, _, number, *_ in arrays[listed].tolist():
            with np.load(path.with_name(f"{path.stem}-{number}-{kind}-{first}.npz")) as file:
                blocks.append(dict(file))
        arrays |= {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return {name: _array(array) for name, array in arrays.items() if not name.startswith(SAVED)}


def leaves(content: Any, name: str = "", left_out: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings and lists, with their keys."""
    if isinstance(content, Mapping):
        items = [(str(key), value) for key, value in content.items() if key not in left_out]
    elif isinstance(content, list | tuple):
        items = [(str(number), value) for number, value in enumerate(content)]
    else:
        yield name, content
        return
    for key, value in items:
        yield from leaves(value, f"{name}/{key}" if name else key, left_out)


def _plain(content: Any, left_out: frozenset[str]) -> dict[str, Value]:
    return {name: _scalar(leaf) for name, leaf in leaves(content, left_out=left_out)}


def _scalar(leaf: object) -> Value:
    text = f"{type(leaf).__name__} {leaf!r}"
    return Value(_hash(text.encode()), text)


def _array(array: Any) -> Value:
    """An array by its type, shape and bytes."""
    import numpy as np

    kind = f"{array.dtype} {list(array.shape)}"
    digest = _hash(kind.encode() + np.ascontiguousarray(array).tobytes())
    first = ", ".join(f"{number!s}" for number in array.reshape(-1)[:3])
    return Value(digest, f"{kind} [{first}{', …' if array.size > 3 else ''}] #{digest[:8]}")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train and leave the results in a folder")
    recording.add_argument("out", type=Path, metavar="OUT")
    recording.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these runs")
    recording.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs beside each other (default 1)"
    )
    recording.add_argument(
        "--code",
        type=Path,
        default=Path(__file__).parents[1],
        metavar="DIR",
        help="the checkout that runs (default: this one)",
    )
    comparing = commands.add_parser("compare", help="tell how two of these differ")
    comparing.add_argument("old", type=Path, metavar="OLD")
    comparing.add_argument("new", type=Path, metavar="NEW")
    comparing.add_argument(
        "--renamed", type=Path, metavar="FILE", help="lines BEFORE AFTER: parts of names that need no mention"
    )
    parsed = parser.parse_args(arguments)
    try:
        if parsed.command == "record":
            record(parsed.out.resolve(), parsed.code.resolve(), parsed.only, parsed.jobs)
            return 0
        return compare(parsed.old, parsed.new, _known(parsed.renamed))
    except (Failure, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _known(path: Path | None) -> dict[str, str]:
    """Renamed parts of names from a file, one pair a line."""
    known: dict[str, str] = {}
    for line in () if path is None else path.read_text(encoding="utf-8").splitlines():
        match line.split():
            case [before, after]:
                known[before] = after
            case [_, *_]:
                raise Failure(f"'{path}': expected two names in a line, got '{line}'")
    return known


if __name__ == "__main__":
    sys.exit(main())
