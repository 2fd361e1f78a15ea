"""training_status.json: the list of a run's checkpoints, in the layout that ML-Agents writes.

{"metadata": {"stats_format_version": "0.3.0", …},
 "<behavior>": {"checkpoints": [{"steps", "file_path", "reward", "creation_time", "auxillary_file_paths"}, …],
                "final_checkpoint": {…}, "elo": 1200.0,
                "recent_returns": [1.5, …], "lesson_levels": {"<environment parameter>": 1.2}},
 "<environment parameter>": {"lesson_num": 2}}

The two lines about lessons are an addition: what else a resumed lesson needs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from trainer_service._version import __version__
from trainer_service.errors import UserError
from trainer_service.running.curriculum import LessonHistory

STATS_FORMAT_VERSION = "0.3.0"
COMPATIBLE_MLAGENTS_VERSION = "1.1.0"
"""The release of ML-Agents that run folders are compatible with."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One saved policy."""

    steps: int
    """Agent steps of its behavior when it was saved."""

    file_path: str
    """The file to play with, where the run stood when it was written: ``results/run/Ball/Ball-5000.onnx``."""

    reward: float | None
    """Mean episode return since the checkpoint before, None if no episode ended."""

    creation_time: float
    """Seconds since 1970."""

    auxiliary_file_paths: tuple[str, ...] = ()
    """Further files of the same policy, such as the state that training resumes from."""

    @property
    def file_names(self) -> frozenset[str]:
        """All its files, as they are called within the behavior's folder, wherever the run was moved."""
        return frozenset(_base_name(path) for path in (self.file_path, *self.auxiliary_file_paths))


@dataclass(frozen=True, slots=True)
class BehaviorStatus:
    """The saved policies of one behavior."""

    checkpoints: tuple[CheckpointRecord, ...] = ()
    """The existing checkpoints, oldest first."""

    final_checkpoint: CheckpointRecord | None = None
    elo: float | None = None
    """Rating under self-play."""

    lesson_history: LessonHistory = field(default_factory=LessonHistory)
    """Returns that lessons remember, as of its newest checkpoint."""

    def with_checkpoint(self, record: CheckpointRecord) -> BehaviorStatus:
        """Returns the status after one more save.

        A second save at the same step replaces the first, and keeps its reward if no episode ended since.
        """
        others = tuple(known for known in self.checkpoints if known.steps != record.steps)
        for known in self.checkpoints:
            if known.steps == record.steps and record.reward is None:
                record = replace(record, reward=known.reward)
        return replace(self, checkpoints=(*others, record))

    def with_files(self, files: Mapping[int, Sequence[Path]]) -> BehaviorStatus:
        """Returns a status that lists exactly the files in the behavior's folder.

        So files that a killed trainer had no time to list are pruned like the others.

        files: numbered states and models by step.
        """
        listed = {record.steps: record for record in self.checkpoints}
        found = (listed.get(steps) or _record_of(steps, files[steps]) for steps in sorted(files))
        return replace(self, checkpoints=tuple(found))


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """Everything in training_status.json."""

    behaviors: Mapping[str, BehaviorStatus] = field(default_factory=dict)
    lessons: Mapping[str, int] = field(default_factory=dict)
    """Number of the current lesson of each environment parameter."""

    torch_version: str | None = None
    """Version of torch in the process that wrote the status."""

    def behavior(self, name: str) -> BehaviorStatus:
        """Returns the status of ``name``, an empty one if it is new."""
        return self.behaviors.get(name, BehaviorStatus())

    def with_behavior(self, name: str, status: BehaviorStatus) -> TrainingStatus:
        """Returns a status where ``name`` has saved that."""
        return replace(self, behaviors={**self.behaviors, name: status})

    def without_behavior(self, name: str) -> TrainingStatus:
        """Returns a status that knows nothing of ``name``."""
        return replace(
            self, behaviors={other: each for other, each in self.behaviors.items() if other != name}
        )

    def to_json(self) -> str:
        """Returns the text of the file."""
        document: dict[str, dict[str, Any]] = {
            "metadata": {
                "stats_format_version": STATS_FORMAT_VERSION,
                "mlagents_version": COMPATIBLE_MLAGENTS_VERSION,
                "torch_version": self.torch_version,
                "trainer_service_version": __version__,
            }
        }
        # A behavior and a parameter may share a name, even 'metadata': they use different keys.
        for name, status in self.behaviors.items():
            document.setdefault(name, {}).update(_behavior_to_json(status))
        for name, lesson in self.lessons.items():
            document.setdefault(name, {})["lesson_num"] = lesson
        return json.dumps(document, indent=4) + "\n"


def prune_checkpoints(status: BehaviorStatus, keep: int) -> tuple[BehaviorStatus, frozenset[str]]:
    """Decides which checkpoints stay: the ``keep`` newest, at least one.

    Returns:
        The status without the others, and the names of their files within the behavior's folder, except
        files that a checkpoint which stays names too.
    """
    kept = status.checkpoints[-max(keep, 1) :]
    dropped = status.checkpoints[: len(status.checkpoints) - len(kept)]
    return replace(status, checkpoints=kept), _files(dropped) - _files(kept)


def read_status(path: Path, *, torch_version: str) -> TrainingStatus:
    """Reads the status of a run that continues; logs a warning where it is missing or from other versions.

    Returns:
        The content of the file, with ``torch_version`` in place of the old one; an empty status without a file.

    Raises:
        UserError: the file has another structure.
    """
    document = _document(path)
    if document is None:
        _logger.warning(
            "Training status file '%s' not found: lessons start over, and older checkpoints are listed from "
            "their files.", path,
        )  # fmt: skip
        return TrainingStatus(torch_version=torch_version)
    status = _checked(path, document, torch_version)
    _warn_of_versions(path, document.get("metadata"), torch_version)
    return status


def read_lessons(path: Path) -> Mapping[str, int]:
    """Reads which lessons a run has reached, by parameter; none without a file. Raises like ``read_status``."""
    return saved_status(path).lessons


def saved_status(path: Path) -> TrainingStatus:
    """Reads the status of a run to look at it; an empty one without a file. Raises like ``read_status``."""
    document = _document(path)
    return TrainingStatus() if document is None else _checked(path, document, None)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # what is no JSON or no UTF-8 is a ValueError too
        raise _unreadable(path, str(error)) from error
    if not isinstance(document, dict):
        raise _unreadable(path, f"expected an object, got {type(document).__name__}")
    return document


def _checked(path: Path, document: Mapping[str, Any], torch_version: str | None) -> TrainingStatus:
    try:
        return _from_json(document, torch_version)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise _unreadable(path, reason) from error


def _unreadable(path: Path, reason: str) -> UserError:
    return UserError(
        f"cannot read '{path}': {reason}. Expected the training status of a run; delete the file to continue "
        "without it, in the first lessons."
    )


def _warn_of_versions(path: Path, metadata: Any, torch_version: str) -> None:
    if not isinstance(metadata, dict):
        _logger.warning(
            "'%s' does not say which versions wrote it; it may be from an incompatible one.", path
        )
        return
    expected = {"stats_format_version": STATS_FORMAT_VERSION, "torch_version": torch_version}
    if "trainer_service_version" in metadata:
        expected["trainer_service_version"] = __version__
    for key, here in expected.items():
        if metadata.get(key) != here:
            _logger.warning("'%s' was written with %s %s, this is %s.", path, key, metadata.get(key), here)


def _behavior_to_json(status: BehaviorStatus) -> dict[str, Any]:
    document: dict[str, Any] = {"checkpoints": [_record_to_json(record) for record in status.checkpoints]}
    if status.final_checkpoint is not None:
        document["final_checkpoint"] = _record_to_json(status.final_checkpoint)
    if status.elo is not None:
        document["elo"] = status.elo
    if status.lesson_history.recent_returns:
        document["recent_returns"] = list(status.lesson_history.recent_returns)
    if status.lesson_history.mean_returns:
        document["lesson_levels"] = dict(status.lesson_history.mean_returns)
    return document


def _record_to_json(record: CheckpointRecord) -> dict[str, Any]:
    plain = asdict(record)
    files = plain.pop("auxiliary_file_paths")
    return {**plain, "auxillary_file_paths": list(files)}  # ML-Agents' spelling is the format


def _from_json(document: Mapping[str, Any], torch_version: str | None) -> TrainingStatus:
    entries = {name: entry for name, entry in document.items() if isinstance(entry, dict)}
    return TrainingStatus(
        behaviors={
            name: _behavior_from_json(entry)
            for name, entry in entries.items()
            if entry.keys() & {"checkpoints", "final_checkpoint", "elo"}  # others are parameters
        },
        lessons={name: int(entry["lesson_num"]) for name, entry in entries.items() if "lesson_num" in entry},
        torch_version=torch_version,
    )


def _behavior_from_json(entry: Mapping[str, Any]) -> BehaviorStatus:
    final, elo = entry.get("final_checkpoint"), entry.get("elo")
    return BehaviorStatus(
        checkpoints=tuple(_record_from_json(record) for record in entry.get("checkpoints", ())),
        final_checkpoint=None if final is None else _record_from_json(final),
        elo=None if elo is None else float(elo),
        lesson_history=LessonHistory(
            tuple(float(value) for value in entry.get("recent_returns", ())),
            {name: float(level) for name, level in dict(entry.get("lesson_levels", {})).items()},
        ),
    )


def _record_from_json(record: Mapping[str, Any]) -> CheckpointRecord:
    reward = record["reward"]
    return CheckpointRecord(
        steps=int(record["steps"]),
        file_path=str(record["file_path"]),
        reward=None if reward is None else float(reward),
        creation_time=float(record["creation_time"]),
        auxiliary_file_paths=tuple(str(path) for path in record.get("auxillary_file_paths", ())),
    )


def _record_of(steps: int, files: Sequence[Path]) -> CheckpointRecord:
    """Returns a record of unlisted files; a model, if there is one, is the file to play with."""
    first, *others = sorted((path.as_posix() for path in files), key=lambda name: not name.endswith(".onnx"))
    return CheckpointRecord(steps, first, None, max(path.stat().st_mtime for path in files), tuple(others))


def _files(records: Sequence[CheckpointRecord]) -> frozenset[str]:
    return frozenset().union(*(record.file_names for record in records))


def _base_name(path: str) -> str:
    # Written on Windows, read on Linux: both separators count.
    return PurePosixPath(path.replace("\\", "/")).name
