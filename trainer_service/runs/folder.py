"""The folder that a run leaves behind: what lies where, and who may write there."""

from __future__ import annotations

import difflib
import glob
import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer_service.config.names import validate_behavior_name, validate_run_id
from trainer_service.errors import UserError
from trainer_service.runs.files import SaveError, remove_leftovers, write_atomic
from trainer_service.runs.lock import AlreadyLockedError, FileLock
from trainer_service.runs.status import TrainingStatus, read_status

_LOCK = ".lock"
_SET_ASIDE = "set-aside"
"""How folders are called, with a number, of what a resumed run had saved after the step it went on from."""
_FAILED_START = frozenset({_LOCK, "configuration.yaml", "run_logs"})
"""What a start leaves that never came to its first agent: nothing that anybody would miss."""
_ROOT_FILES = ("configuration.yaml", "metrics.jsonl", "evaluations.jsonl")
_LOG_FILES = ("training_status.json", "timers.json", "Player-*.log")
_BEHAVIOR_FILES = (
    "checkpoint.pt", "best.pt", "best.onnx", "replay.npz", "events.out.tfevents.*", "last_replay_buffer.hdf5",
)  # fmt: skip

_logger = logging.getLogger(__name__)


class RunFolder:
    """ML-Agents' layout of one run, plus ``metrics.jsonl`` and what evaluations leave.

    ::

        <results-dir>/<run-id>/
          configuration.yaml                        all options of the run
          metrics.jsonl                             one line per summary and behavior
          evaluations.jsonl                         one line per evaluation and behavior
          run_logs/training_status.json             list of checkpoints
          run_logs/timers.json                      where the time went
          run_logs/Player-<worker>.log              output of each launched simulator
          <behavior>.onnx                           final model
          <behavior>/<behavior>-<step>.onnx, .pt    older ones
          <behavior>/checkpoint.pt                  what --resume and --initialize-from read
          <behavior>/best.pt, best.onnx             the policy that scored best, with evaluation
          <behavior>/replay.npz                     what --resume reads too, with save_replay_buffer
          <behavior>/events.out.tfevents.*          for TensorBoard
          set-aside-<n>/<behavior>/                 what was newer when --resume went on from an older checkpoint

    One process writes, any number read. A folder opened to be read is never changed.
    """

    def __init__(
        self, path: Path, *, initialize_from: Path | None = None, lock: FileLock | None = None
    ) -> None:
        self.path = path
        self.initialize_from = initialize_from
        """Folder of the run whose weights this one starts from."""
        self._lock = lock

    @classmethod
    def open(
        cls,
        results_dir: str | Path,
        run_id: str,
        *,
        resume: bool = False,
        force: bool = False,
        initialize_from: str | None = None,
        inference: bool = False,
    ) -> Self:
        """Opens the folder as the flags of the same names ask. Changes nothing before everything is checked.

        ``resume`` goes on with a run that exists; with it ``force`` has no meaning, so that nothing is lost.
        ``force`` removes what a run of the same id left: files that a run writes, no others.
        ``inference`` opens the folder to be read only; it need not exist.

        Raises:
            UserError: an impossible run id, a run that exists or is missing against the flags, or one that
                another process is writing.
        """
        validate_run_id(run_id)
        results = Path(results_dir)
        path = results / run_id
        exists = _holds_run(path)
        if resume and not exists:
            raise UserError(f"{_not_found(results, run_id)}. Remove --resume to train a new run.")
        if exists and not resume and not force:
            raise UserError(
                f"run id '{run_id}' is taken: '{path}' holds an earlier run. Either choose a new --run-id, "
                "use --resume to continue that run, or use --force to overwrite it."
            )
        source = _source(results, run_id, initialize_from, overwritten=force and not resume and not inference)
        if inference:
            return cls(path, initialize_from=source)
        lock = _lock(path, run_id)
        try:
            for folder in (path, *_subfolders(path)):
                remove_leftovers(folder)
            if exists and not resume:
                _remove_previous(path)
        except OSError as error:
            lock.release()
            raise SaveError(Path(error.filename or path), error) from error
        return cls(path, initialize_from=source, lock=lock)

    @classmethod
    def read(cls, results_dir: str | Path, run_id: str) -> Self:
        """Opens a run that exists, to look at or to play with.

        Raises:
            UserError: an impossible run id, or no such run.
        """
        validate_run_id(run_id)
        results = Path(results_dir)
        if not _holds_run(results / run_id):
            raise UserError(f"{_not_found(results, run_id)}.")
        return cls(results / run_id)

    @property
    def writable(self) -> bool:
        """Whether this process may change the folder; it alone may then."""
        return self._lock is not None

    @property
    def configuration(self) -> Path:
        """All options of the run, YAML."""
        return self.path / "configuration.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object per line: a summary of one behavior."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """One JSON object per line: a score of one behavior."""
        return self.path / "evaluations.jsonl"

    @property
    def run_logs(self) -> Path:
        """Folder of what is of interest after the run."""
        return self.path / "run_logs"

    @property
    def status(self) -> Path:
        """The list of checkpoints, JSON."""
        return self.run_logs / "training_status.json"

    @property
    def timers(self) -> Path:
        """Where the time went, JSON."""
        return self.run_logs / "timers.json"

    def player_log(self, worker: int) -> Path:
        """Output of the launched simulator number ``worker``."""
        return self.run_logs / f"Player-{worker}.log"

    def behavior(self, name: str) -> Path:
        """Folder of one behavior.

        Raises:
            UserError: a name that would lead out of the run folder, or that no file system takes.
        """
        validate_behavior_name(name)
        return self.path / name

    def checkpoint(self, name: str) -> Path:
        """The newest complete state of a behavior."""
        return self.behavior(name) / "checkpoint.pt"

    def best(self, name: str) -> Path:
        """The state of a behavior that scored best in evaluations."""
        return self.behavior(name) / "best.pt"

    def replay(self, name: str) -> Path:
        """What a behavior has lived through and learns from again."""
        return self.behavior(name) / "replay.npz"

    def numbered(self, name: str, step: int, suffix: str = ".pt") -> Path:
        """The state (.pt) or model (.onnx) of a behavior at one step."""
        return self.behavior(name) / f"{name}-{step}{suffix}"

    def final_model(self, name: str) -> Path:
        """The model to take home."""
        return self.behavior(name).with_name(f"{name}.onnx")

    def saved_behaviors(self) -> list[str]:
        """Names of the behaviors that have a state here, whether it can be read or not."""
        return [
            entry.name
            for entry in sorted(_subfolders(self.path))
            if (entry / "checkpoint.pt").is_file() or _numbered_in(entry)
        ]

    def numbered_files(self, name: str) -> dict[int, list[Path]]:
        """The numbered states (.pt) and models (.onnx) of a behavior by step, ascending."""
        return _numbered_in(self.behavior(name))

    def write_configuration(self, text: str) -> None:
        """Replaces configuration.yaml. Raises SaveError."""
        self._write(self.configuration, text)

    def write_status(self, status: TrainingStatus) -> None:
        """Replaces training_status.json. Raises SaveError."""
        self._write(self.status, status.to_json())

    def write_timers(self, text: str) -> None:
        """Replaces timers.json. Raises SaveError."""
        self._write(self.timers, text)

    def read_status(self, *, torch_version: str) -> TrainingStatus:
        """Returns what the run has saved so far; see ``trainer_service.runs.status.read_status``."""
        return read_status(self.status, torch_version=torch_version)

    def remove(self, name: str, file_names: Iterable[str]) -> None:
        """Deletes numbered files of a behavior: no others, whatever the names say. Raises SaveError."""
        self._require_writable()
        for file_name in filter(_numbered_files(name).fullmatch, file_names):
            path = self.behavior(name) / file_name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise SaveError(path, error) from error

    def set_aside(self, paths: Iterable[Path]) -> Path:
        """Moves files of the run into a folder where nothing reads, overwrites or prunes them. Returns it.

        A copy of what the run has said so far goes with them. Raises SaveError.
        """
        self._require_writable()
        taken = (self.path / f"{_SET_ASIDE}-{number}" for number in itertools.count(1))
        aside = next(path for path in taken if not path.exists())
        for path in paths:
            target = aside / path.relative_to(self.path)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
            except OSError as error:
                raise SaveError(target, error) from error
        for said in filter(Path.is_file, (self.metrics, self.evaluations)):
            write_atomic(aside / said.name, said.read_bytes())
        return aside

    def close(self) -> None:
        """Lets others write."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, path: Path, text: str) -> None:
        self._require_writable()
        write_atomic(path, text)

    def _require_writable(self) -> None:
        if not self.writable:
            raise RuntimeError(f"'{self.path}' was opened to be read only")


def _holds_run(path: Path) -> bool:
    """Whether anything is in the folder that a start which failed at once would not leave there too."""
    if path.exists() and not path.is_dir():
        raise UserError(f"'{path}' is a file; expected the folder of a run")
    return path.is_dir() and any(entry.name not in _FAILED_START for entry in path.iterdir())


def _not_found(results: Path, run_id: str) -> str:
    runs = [entry.name for entry in results.iterdir() if entry.is_dir()] if results.is_dir() else []
    if run_id in runs:
        return (
            f"no run '{run_id}' in '{results}': its folder is there, but a start ended before any agent came"
        )
    nearest = difflib.get_close_matches(run_id, runs, n=1)
    hint = f" (did you mean '{nearest[0]}'?)" if nearest else ""
    return f"no run '{run_id}' in '{results}'{hint}"


def _source(results: Path, run_id: str, initialize_from: str | None, *, overwritten: bool) -> Path | None:
    if initialize_from is None:
        return None
    validate_run_id(initialize_from)
    if initialize_from == run_id and overwritten:
        raise UserError(
            f"--initialize-from={initialize_from} names the run that --force would overwrite. "
            "Choose another --run-id, or use --resume."
        )
    if not _holds_run(results / initialize_from):
        raise UserError(f"--initialize-from: {_not_found(results, initialize_from)}.")
    return results / initialize_from


def _lock(path: Path, run_id: str) -> FileLock:
    try:
        path.mkdir(parents=True, exist_ok=True)
        return FileLock(path / _LOCK)
    except OSError as error:
        raise SaveError(path, error) from error
    except AlreadyLockedError as error:
        holder = "another process" if error.holder is None else f"process {error.holder}"
        raise UserError(
            f"run id '{run_id}' is in use: {holder} is writing to '{path}'. "
            "Stop it or choose another --run-id."
        ) from None


def _remove_previous(path: Path) -> None:
    files = list(_previous_files(path))
    for file in files:
        file.unlink()
    for folder in (*_behaviors_set_aside(path), *_subfolders(path)):
        if not any(folder.iterdir()):
            folder.rmdir()
    _logger.warning("Removed %d files of the earlier run in '%s'.", len(files), path)


def _previous_files(path: Path) -> Iterator[Path]:
    """Files that only a run of ours or of ML-Agents writes; what a user put beside them is not ours."""
    folders = _subfolders(path)
    yield from _present(path, (*_ROOT_FILES, *(glob.escape(f"{folder.name}.onnx") for folder in folders)))
    yield from _present(path / "run_logs", _LOG_FILES)
    for aside in _folders_set_aside(path):
        yield from _present(aside, _ROOT_FILES)
    for folder in (*folders, *_behaviors_set_aside(path)):
        yield from _present(folder, _BEHAVIOR_FILES)
        yield from (file for file in folder.iterdir() if _numbered_files(folder.name).fullmatch(file.name))


def _numbered_in(folder: Path) -> dict[int, list[Path]]:
    """Files of a behavior's folder by the step in their names, ascending."""
    found: dict[int, list[Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _numbered_files(folder.name).fullmatch(file.name):
            found.setdefault(int(file.stem.rpartition("-")[2]), []).append(file)
    return dict(sorted(found.items()))


def _numbered_files(behavior: str) -> re.Pattern[str]:
    return re.compile(re.escape(behavior) + r"-\d+\.(pt|onnx)")


def _folders_set_aside(path: Path) -> list[Path]:
    return [folder for folder in _subfolders(path) if re.fullmatch(_SET_ASIDE + r"-\d+", folder.name)]


def _behaviors_set_aside(path: Path) -> list[Path]:
    return [behavior for aside in _folders_set_aside(path) for behavior in _subfolders(aside)]


def _subfolders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]


def _present(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from (file for file in folder.glob(pattern) if file.is_file())
