"""The layout of a run's folder: where its files are, and which files there are its own."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainer_service.config.names import STATE_SUFFIXES, validate_behavior_name
from trainer_service.errors import UserError
from unity_bridge.names import did_you_mean

NEWEST = f"checkpoint{STATE_SUFFIXES[0]}"
"""The name of a behavior's newest state."""
BEST = f"best{STATE_SUFFIXES[0]}"
"""The name of the state of a behavior that scored best in evaluations."""
RESULTS = Path("results")
"""The folder of all runs, unless another one is given."""
LOCK = ".lock"
_SET_ASIDE = "set-aside"
"""Prefix of folders for files of a resumed run that are newer than the step it resumed from."""
_REPLACED, _REMOVED = ".replaced", ".removed"
"""Folders of the files that ``--force`` replaces: until the new run has begun, and while they are removed."""
_FAILED_START = frozenset({LOCK, "configuration.yaml", "run_logs", _REMOVED})
"""Files that a start leaves which ended before its first agent came: nothing of value."""
_ROOT_FILES = (
    "configuration.yaml", "suggested.yaml", "metrics.jsonl", "evaluations.jsonl", "film-[0-9]*.gif", "report.html",
)  # fmt: skip
BUNDLE_FILES = ("policy.onnx", "policy.json", "policy.py", "policy.mjs")
"""The files of a behavior's bundle: model, description, and runners in Python and JavaScript."""
_FILM = re.compile(r"film-(\d+)\.gif")
OLDER_LOGS = 3
"""Log files of the trainer that are kept beside the newest."""
_LOG_FILES = (
    "training_status.json", "timers.json", "Player-*.log", "tracker-*.json", "trainer.log", "trainer.log.[0-9]",
)  # fmt: skip
_BEHAVIOR_FILES = (
    *(f"{name}{suffix}" for name in ("checkpoint", "best") for suffix in STATE_SUFFIXES),
    "best.onnx", "replay.npz", "replay-[0-9]*-*-[0-9]*.npz", "events.out.tfevents.*",
    "last_replay_buffer.hdf5",
)  # fmt: skip


def existing_state(path: Path) -> Path:
    """The file of a state that is there, under our suffix or that of ML-Agents; ``path`` itself if there is none."""
    return next((file for file in (path, *map(path.with_suffix, STATE_SUFFIXES)) if file.is_file()), path)


def state_among(files: Iterable[Path]) -> Path | None:
    """The state among the files of one step, this trainer's first; None where they are models only."""
    by_suffix = {file.suffix: file for file in files}
    return next((by_suffix[suffix] for suffix in STATE_SUFFIXES if suffix in by_suffix), None)


def run_path(run: str | os.PathLike[str], results: str | os.PathLike[str] = RESULTS) -> Path:
    """The folder of a run that is named by its id, if it is in ``results``, or by its folder; nothing need be there."""
    path, named = Path(run), Path(results, run)
    is_id = path.name == os.fspath(run) and not os.path.isdir(path)  # False for a name that is too long
    return named if is_id or os.path.isdir(named) else path


def missing_run(results: Path, run_id: str) -> str:
    """The message that a folder holds no run of an id, with its runs of several seeds or the nearest id."""
    runs = [entry.name for entry in results.iterdir() if entry.is_dir()] if results.is_dir() else []
    seeds = {int(name[len(run_id) + 1 :]): name for name in runs if _is_seed_of(run_id, name)}
    if seeds:
        names = ", ".join(name for _, name in sorted(seeds.items()))
        return f"no run '{run_id}' in '{results}': '{run_id}' has the runs {names}; name one"
    return f"no run '{run_id}' in '{results}'{did_you_mean(run_id, runs)}"


def _is_seed_of(run_id: str, name: str) -> bool:
    """Whether a run's name is that of one seed of an id, such as ``walker-2`` of ``walker``."""
    return name.startswith(f"{run_id}-") and name[len(run_id) + 1 :].isdecimal()


class RunLayout:
    """ML-Agents' layout of one run, plus ``metrics.jsonl`` and the files of evaluations.

    ::

        <results-dir>/<run-id>/
          configuration.yaml                        all options of the run
          suggested.yaml                            suggested settings of a run without a configuration
          metrics.jsonl                             one line per summary and behavior
          evaluations.jsonl                         one line per evaluation and behavior
          film-<step>.gif                           the best episode of an evaluation
          report.html                               the page that ``report`` writes
          run_logs/training_status.json             list of checkpoints
          run_logs/timers.json                      durations of the parts of the run
          run_logs/job.log                          output of the process if another one started it, with --seeds
          run_logs/trainer.log                      log of the trainer; older parts are trainer.log.1 and so on
          run_logs/Player-<worker>.log              output of each launched simulator
          run_logs/tracker-<name>.json              the run's id in a tracker, which --resume continues
          <behavior>.onnx                           final model
          <behavior>/<behavior>-<step>.onnx         older ones
          <behavior>/<behavior>-<step>.safetensors  states of those steps
          <behavior>/checkpoint.safetensors         newest state, for --resume and --initialize-from
          <behavior>/best.safetensors, best.onnx    the policy that scored best, with evaluation
          <behavior>/replay.npz, replay-*.npz       replay buffer for --resume, with save_replay_buffer
          <behavior>/events.out.tfevents.*          for TensorBoard
          bundle/<behavior>/policy.*                what ``export --bundle`` writes
          <member>.onnx, <member>/                  models of a heterogeneous group's members; states are in <group>/
          set-aside-<n>/<behavior>/                 newer states, after --resume from an older checkpoint
          .replaced/                                files of the run that --force replaces, until the new one has begun

    ML-Agents' states end in ``.pt``; they can be read too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = self.path / LOCK
        """The file that the writing process keeps locked."""
        self.replaced = self.path / _REPLACED
        """Where the files of a run that is to be replaced wait."""
        self.removed = self.path / _REMOVED
        """Where they are removed."""
        self.configuration = self.path / "configuration.yaml"
        """All options of the run, YAML."""
        self.suggestion = self.path / "suggested.yaml"
        """The settings that were suggested for a run without a configuration, with their reasons."""
        self.metrics = self.path / "metrics.jsonl"
        """One JSON object per line: a summary of one behavior."""
        self.evaluations = self.path / "evaluations.jsonl"
        """One JSON object per line: a score of one behavior."""
        self.report = self.path / "report.html"
        """A page on the run."""
        self.bundle = self.path / "bundle"
        """The bundles of the behaviors, each in a folder of its name."""
        self.run_logs = self.path / "run_logs"
        """The folder of logs, timers and the list of checkpoints."""
        self.status = self.run_logs / "training_status.json"
        """The list of checkpoints, JSON."""
        self.timers = self.run_logs / "timers.json"
        """Time per part of the run, JSON."""
        self.trainer_log = self.run_logs / "trainer.log"
        """Everything that the trainer logged, with times."""
        self.job_log = self.run_logs / "job.log"
        """The output of a run that another process started, as with ``--seeds``."""

    def film(self, step: int) -> Path:
        """The best episode of the evaluation at a step."""
        return self.path / f"film-{step}.gif"

    def films(self) -> dict[int, Path]:
        """The films that there are by their step, ascending."""
        names = {path: _FILM.fullmatch(path.name) for path in self.path.glob("film-*.gif")}
        return dict(sorted((int(name[1]), path) for path, name in names.items() if name))

    def player_log(self, worker: int) -> Path:
        """Output of the launched simulator number ``worker``."""
        return self.run_logs / f"Player-{worker}.log"

    def tracker(self, name: str) -> Path:
        """A tracker's state for a resumed run, as JSON."""
        return self.run_logs / f"tracker-{name}.json"

    def behavior(self, name: str) -> Path:
        """Folder of one behavior.

        Raises:
            UserError: a name that would lead out of the run folder, or that no file system takes.
        """
        validate_behavior_name(name)
        return self.path / name

    def checkpoint(self, name: str) -> Path:
        """The newest complete state of a behavior."""
        return self.behavior(name) / NEWEST

    def states(self, file: str = NEWEST) -> dict[str, Path]:
        """The file of this name in each behavior's folder that has one, by behavior: the newest states by default."""
        found = {entry.name: existing_state(entry / file) for entry in sorted(_subfolders(self.path))}
        return {name: path for name, path in found.items() if path.is_file()}

    def best(self, name: str) -> Path:
        """The state of a behavior that scored best in evaluations."""
        return self.behavior(name) / BEST

    def replay(self, name: str) -> Path:
        """The saved replay buffer of a behavior, all but its rows."""
        return self.behavior(name) / "replay.npz"

    def replay_rows(self, name: str, number: int, kind: str, first: int) -> Path:
        """A file of rows of the saved replay buffer, see the function of the same name."""
        return replay_rows(self.replay(name), number, kind, first)

    def numbered(self, name: str, step: int, suffix: str = STATE_SUFFIXES[0]) -> Path:
        """The state or model (.onnx) of a behavior at one step."""
        return self.behavior(name) / f"{name}-{step}{suffix}"

    def final_model(self, name: str) -> Path:
        """The exported model of a finished run."""
        return self.behavior(name).with_name(f"{name}.onnx")

    def saved_behaviors(self) -> list[str]:
        """Names of the behaviors that have a state here, whether it can be read or not."""
        newest = self.states()
        return [
            entry.name
            for entry in sorted(_subfolders(self.path))
            # Models alone are of a member of a heterogeneous group, whose states are in the group's folder.
            if entry.name in newest or any(map(state_among, _numbered_in(entry).values()))
        ]

    def numbered_files(self, name: str) -> dict[int, list[Path]]:
        """The numbered states and models (.onnx) of a behavior by step, ascending."""
        return _numbered_in(self.behavior(name))

    def numbered_states(self, name: str) -> dict[int, Path]:
        """The numbered states of a behavior by step, ascending."""
        states = {step: state_among(files) for step, files in self.numbered_files(name).items()}
        return {step: path for step, path in states.items() if path is not None}

    def best_checkpoints(self, names: Iterable[str]) -> dict[str, Path]:
        """The checkpoint of each behavior that scored best. Raises UserError where one has none."""
        best = {name: existing_state(self.best(name)) for name in names}
        missing = [name for name, path in best.items() if not path.is_file()]
        if missing:
            raise UserError(
                f"no best checkpoint of {', '.join(missing)} in '{self.path}'; "
                "a run keeps one where its configuration has a section 'evaluation'"
            )
        return best

    def checkpoints_of_step(self, names: Iterable[str], step: int) -> dict[str, Path]:
        """The checkpoint of a step of each behavior, or the newest before it: each behavior counts its own steps.

        Raises:
            UserError: none of them has one of that very step, or one has none before it.
        """
        steps = {name: self.numbered_states(name) for name in names}
        there = "; ".join(f"{name}: {', '.join(map(str, known)) or 'none'}" for name, known in steps.items())
        before = {name: [at for at in known if at <= step] for name, known in steps.items()}
        if not any(step in known for known in steps.values()) or not all(before.values()):
            raise UserError(f"'{self.path}' has no checkpoint of step {step}; it has {there}")
        return {name: steps[name][known[-1]] for name, known in before.items()}

    def has_run(self) -> bool:
        """Whether the folder holds more than a start leaves that failed at once.

        Raises:
            UserError: the folder is a file.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"'{self.path}' is a file; expected the folder of a run")
        return self.path.is_dir() and any(entry.name not in _FAILED_START for entry in self.path.iterdir())

    def folders(self) -> list[Path]:
        """The folder itself and those directly in it, in which a run writes."""
        return [self.path, *_subfolders(self.path)]

    def files(self) -> Iterator[Path]:
        """Yields the files that only runs of this trainer or of ML-Agents write, and no files of users."""
        folders = _subfolders(self.path)
        models = (glob.escape(f"{folder.name}.onnx") for folder in folders)
        yield from _present(self.path, (*_ROOT_FILES, *models))
        yield from _present(self.run_logs, _LOG_FILES)
        for aside in self.folders_set_aside():
            yield from _present(aside, _ROOT_FILES)
        for folder in (*folders, *self._behaviors_set_aside()):
            yield from _present(folder, _BEHAVIOR_FILES)
            yield from (file for file in folder.iterdir() if numbered_name(folder.name).fullmatch(file.name))
        for folder in _subfolders(self.bundle):
            yield from _present(folder, BUNDLE_FILES)

    def subfolders(self) -> list[Path]:
        """Returns the folders of behaviors, of their bundles and the set-aside folders, the innermost first."""
        return [*self._behaviors_set_aside(), *_subfolders(self.bundle), *_subfolders(self.path)]

    def next_set_aside(self) -> Path:
        """Returns a new folder's path for the files that the next resumed run sets aside."""
        taken = (self.path / f"{_SET_ASIDE}-{number}" for number in itertools.count(1))
        return next(path for path in taken if not path.exists())

    def folders_set_aside(self) -> list[Path]:
        """Returns the folders of states that resumed runs have set aside."""
        return [
            folder for folder in _subfolders(self.path) if re.fullmatch(_SET_ASIDE + r"-\d+", folder.name)
        ]

    def _behaviors_set_aside(self) -> list[Path]:
        return [behavior for aside in self.folders_set_aside() for behavior in _subfolders(aside)]


def numbered_name(behavior: str) -> re.Pattern[str]:
    """A pattern for the names of a behavior's numbered states and models."""
    return re.compile(re.escape(behavior) + r"-\d+\.(safetensors|pt|onnx)")


def replay_rows(replay: Path, number: int, kind: str, first: int) -> Path:
    """The file of rows of a kind, from ``first`` on, that a save of this number wrote beside a saved replay buffer."""
    return replay.with_name(f"{replay.stem}-{number}-{kind}-{first}.npz")


def is_replay_rows(replay: Path, name: str) -> bool:
    """Whether files of rows beside a saved replay buffer have such names."""
    return _replay_rows_name(replay).fullmatch(name) is not None


def replay_rows_numbers(replay: Path) -> dict[Path, int]:
    """The files of rows beside a saved replay buffer, with the numbers of the saves that wrote them."""
    name = _replay_rows_name(replay)
    found = {
        path: name.fullmatch(path.name) for path in replay.parent.glob(f"{glob.escape(replay.stem)}-*.npz")
    }
    return {path: int(match[1]) for path, match in found.items() if match}


def _replay_rows_name(replay: Path) -> re.Pattern[str]:
    return re.compile(re.escape(replay.stem) + r"-(\d{1,18})-[a-z]+-\d+\.npz")


def _numbered_in(folder: Path) -> dict[int, list[Path]]:
    """Files of a behavior's folder by the step in their names, ascending."""
    found: dict[int, list[Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if numbered_name(folder.name).fullmatch(file.name):
            found.setdefault(int(file.stem.rpartition("-")[2]), []).append(file)
    return dict(sorted(found.items()))


def _subfolders(path: Path) -> list[Path]:
    """The folders in a folder, without links to others, and without the files of a run that is replaced."""
    if not path.is_dir():
        return []
    entries = (entry for entry in path.iterdir() if entry.name not in (_REPLACED, _REMOVED))
    return [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]


def _present(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from (file for file in folder.glob(pattern) if file.is_file())
