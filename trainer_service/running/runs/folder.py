"""The folder of one run: how it is opened, and written by one process alone."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from trainer_service.config.names import STATE_SUFFIXES, validate_run_id
from trainer_service.errors import UserError
from trainer_service.running.runs.checkpoint import finish_save, has_gradient_steps, load_checkpoint
from trainer_service.running.runs.files import SaveError, remove_leftovers, write_atomic
from trainer_service.running.runs.layout import RunLayout, missing_run, numbered_name, run_path
from trainer_service.running.runs.lock import AlreadyLockedError, FileLock
from trainer_service.running.runs.status import TrainingStatus, read_status

_logger = logging.getLogger(__name__)


class RunFolder(RunLayout):
    """The folder of one run, open to be written by one process or to be read by any number.

    One that was opened to be read is never changed.
    """

    def __init__(
        self, given: Path, *, initialize_from: Path | None = None, lock: FileLock | None = None
    ) -> None:
        # Hosted code may change the working folder while another thread writes.
        super().__init__(given if lock is None else given.absolute())
        self.given = given
        """The path as the user gave it."""
        self.initialize_from = initialize_from
        """Folder of the run to take initial weights from."""
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

        ``resume`` continues with a run that exists; with it ``force`` has no meaning, so that nothing is lost.
        ``force`` replaces a run of the same id: its files, no others, are removed when the new run has begun (see
        ``begin``), and are put back if it never does.
        ``inference`` opens the folder to be read only; it need not exist.

        Raises:
            UserError: an impossible run id, a run that exists or is missing against the flags, or one that
                another process is writing.
        """
        results, layout = Path(results_dir), require_run_id(results_dir, run_id, resume=resume, force=force)
        exists = layout.has_run()
        overwritten = force and not resume and not inference
        source = _source(results, run_id, initialize_from, overwritten=overwritten)
        if inference:
            return cls(layout.path, initialize_from=source)
        lock = _locked(layout, run_id)
        try:
            for name in layout.saved_behaviors() if resume else ():
                finish_save(layout.checkpoint(name), layout.replay(name))
            for folder in layout.folders():
                remove_leftovers(folder)
            shutil.rmtree(layout.removed, ignore_errors=True)
            _put_back(layout)  # what a process left that was killed before its run had begun
            if exists and not resume:
                _put_away(layout)
        except OSError as error:
            lock.release()
            raise SaveError(Path(error.filename or layout.path), error) from error
        return cls(layout.path, initialize_from=source, lock=lock)

    @classmethod
    def read(cls, results_dir: str | Path, run: str | os.PathLike[str]) -> Self:
        """Opens a run that exists, to look at or to play with. run: its id, or its folder; see ``run_path``.

        Raises:
            UserError: an impossible run id, or no such run.
        """
        folder = cls(run_path(run, results_dir))
        validate_run_id(folder.path.name)
        if not folder.has_run():
            raise UserError(f"{_not_found(folder.path.parent, folder.path.name)}.")
        return folder

    @property
    def writable(self) -> bool:
        """Whether this process may change the folder; it alone may then."""
        return self._lock is not None

    def begin(self, configuration: str) -> None:
        """Begins the run, when everything fits: writes configuration.yaml, and removes the run that is replaced.

        Before that a start that fails leaves an earlier run as it was. Raises SaveError.
        """
        self._write(self.configuration, configuration)
        if self.replaced.is_dir():
            count = sum(each.is_file() for each in self.replaced.rglob("*"))
            self.replaced.rename(self.removed)  # at once: from now on nothing is put back
            shutil.rmtree(self.removed, ignore_errors=True)
            _logger.warning("Removed %d files of the earlier run in '%s'.", count, self.path)

    def write_status(self, status: TrainingStatus) -> None:
        """Replaces training_status.json, whose paths begin as the user gave the folder. Raises SaveError."""
        path, given = (json.dumps(f"{each.as_posix()}/")[:-1] for each in (self.path, self.given))
        self._write(self.status, status.to_json().replace(path, given))

    def write_timers(self, text: str) -> None:
        """Replaces timers.json. Raises SaveError."""
        self._write(self.timers, text)

    def read_status(self, *, torch_version: str) -> TrainingStatus:
        """Returns the saved status of the run; see ``trainer_service.running.runs.status.read_status``."""
        return read_status(self.status, torch_version=torch_version)

    def remove(self, name: str, file_names: Iterable[str]) -> None:
        """Deletes numbered files of a behavior: no others, whatever the names say. Raises SaveError."""
        self._require_writable()
        for file_name in filter(numbered_name(name).fullmatch, file_names):
            path = self.behavior(name) / file_name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise SaveError(path, error) from error

    def set_aside(self, paths: Iterable[Path]) -> Path:
        """Moves files of the run into a folder where nothing reads, overwrites or prunes them. Returns that folder.

        The folder also gets a copy of the metrics and evaluations so far. Raises SaveError.
        """
        self._require_writable()
        aside = self.next_set_aside()
        for path in paths:
            target = aside / path.relative_to(self.path)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
            except OSError as error:
                raise SaveError(target, error) from error
        for rows in filter(Path.is_file, (self.metrics, self.evaluations)):
            write_atomic(aside / rows.name, rows.read_bytes())
        return aside

    def close(self) -> None:
        """Releases the lock, so that other processes can write. Puts back a run that was not replaced after all."""
        if self._lock is not None:
            _put_back(self)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def _write(self, path: Path, text: str) -> None:
        self._require_writable()
        write_atomic(path, text)

    def _require_writable(self) -> None:
        if not self.writable:
            raise RuntimeError(f"'{self.path}' was opened to be read only")


def require_run_id(
    results_dir: str | Path, run_id: str, *, resume: bool = False, force: bool = False
) -> RunLayout:
    """Returns the layout of a run if the flags of the same names permit its id. Raises UserError if they do not."""
    validate_run_id(run_id)
    results = Path(results_dir)
    layout = RunLayout(results / run_id)
    exists = layout.has_run()
    if resume and not exists:
        raise UserError(f"{_not_found(results, run_id)}. Remove --resume to train a new run.")
    if exists and not resume and not force:
        raise UserError(_taken(layout, run_id))
    return layout


def _not_found(results: Path, run_id: str) -> str:
    if (results / run_id).is_dir():
        return f"no run '{run_id}' in '{results}': its folder exists, but the run ended before any agent appeared"
    return missing_run(results, run_id)


def _taken(layout: RunLayout, run_id: str) -> str:
    """The message that a run id is taken, with the ways out."""
    if _has_learned(layout):
        return (
            f"run id '{run_id}' is taken: '{layout.path}' holds an earlier run. Either choose a new --run-id, "
            "use --resume to continue that run, or use --force to overwrite it."
        )
    ways = "--resume to continue it, " if layout.saved_behaviors() else ""
    return (
        f"run id '{run_id}' is taken: '{layout.path}' holds an earlier run, but nothing was learned in it yet. "
        f"Use --force to overwrite it, {ways}or choose a new --run-id."
    )


def _has_learned(layout: RunLayout) -> bool:
    """Whether a run may hold anything learned. Summaries, set-aside states and what cannot be read count as learned."""
    names = layout.saved_behaviors()
    if layout.metrics.is_file() or layout.folders_set_aside():
        return True
    if not names:
        return any(file.suffix in (".onnx", *STATE_SUFFIXES) for file in layout.files())
    try:
        return any(has_gradient_steps(load_checkpoint(layout.checkpoint(name))) for name in names)
    except UserError:
        return True


def _source(results: Path, run_id: str, initialize_from: str | None, *, overwritten: bool) -> Path | None:
    if initialize_from is None:
        return None
    source = RunLayout(run_path(initialize_from, results))
    validate_run_id(source.path.name)
    if overwritten and source.path.absolute() == (results / run_id).absolute():
        raise UserError(
            f"--initialize-from={initialize_from} names the run that --force would overwrite. "
            "Choose another --run-id, or use --resume."
        )
    if not source.has_run():
        raise UserError(f"--initialize-from: {_not_found(source.path.parent, source.path.name)}.")
    return source.path


def _locked(layout: RunLayout, run_id: str) -> FileLock:
    """The claim to write there, for a folder that is made if it is missing."""
    try:
        layout.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SaveError(layout.path, error) from error
    try:
        return FileLock(layout.lock)
    except OSError as error:
        raise SaveError(layout.lock, error) from error
    except AlreadyLockedError as error:
        holder = "another process" if error.holder is None else f"process {error.holder}"
        raise UserError(
            f"run id '{run_id}' is in use: {holder} is writing to '{layout.path}'. "
            "Stop it or choose another --run-id."
        ) from None


def _put_away(layout: RunLayout) -> None:
    """Moves the files of an earlier run to where they wait, and removes the folders that are empty then."""
    for file in list(layout.files()):
        _move(file, layout.replaced / file.relative_to(layout.path))
    for folder in layout.subfolders():
        if not any(folder.iterdir()):
            folder.rmdir()


def _put_back(layout: RunLayout) -> None:
    """Moves the files of a run that waits to be replaced back, if there is one. Newer logs stay, after older lines."""
    if not layout.replaced.is_dir():
        return
    for file in [each for each in layout.replaced.rglob("*") if each.is_file()]:
        target = layout.path / file.relative_to(layout.replaced)
        if target.suffix == ".log" and target.is_file():
            with file.open("ab") as older:
                older.write(target.read_bytes())
        _move(file, target)
    shutil.rmtree(layout.replaced)


def _move(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    file.replace(target)
