"""The record of a run, read from its folder: curves, configuration and progress."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard

from trainer_service.commands.common.curves import Curve
from trainer_service.commands.common.event_files import has_event_files, read_event_files
from trainer_service.config.reading.document import read_document
from trainer_service.errors import ConfigError, UserError
from trainer_service.running.metrics import MEMBER_REWARD, json_key, read_rows
from trainer_service.running.runs.layout import RunLayout, missing_run, run_path

OURS, ML_AGENTS = "trainer-service", "ML-Agents"

_METRIC_OF_TAG: Mapping[str, str] = {
    "Environment/Cumulative Reward": "mean_return",
    "Environment/Group Cumulative Reward": "mean_group_return",
    "Environment/Episode Length": "mean_length",
    "Evaluation/Cumulative Reward": "evaluation/mean_return",
    "Evaluation/Group Cumulative Reward": "evaluation/mean_group_return",
    "Evaluation/Episode Length": "evaluation/mean_length",
}
_EVALUATION = "evaluation/"
_MEMBER = "member_returns/"
_MOST_STEPS = 2**62
_NO_METRICS = frozenset({"step", "wall_s"})

Curves = Mapping[str, Mapping[str, Curve]]
"""Curves by behavior and metric."""


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as its folder tells it, finished or not."""

    path: Path
    trainer: str
    """The trainer that made it, ``OURS`` or ``ML_AGENTS``."""

    options: Mapping[str, Any] | None
    """The values of configuration.yaml; None without a readable one."""

    curves: Curves = field(default_factory=dict)
    """Metrics as in metrics.jsonl; those of evaluations.jsonl begin with ``evaluation/``."""

    @property
    def name(self) -> str:
        """The run id."""
        return self.path.resolve().name

    @property
    def seed(self) -> int | None:
        """The seed that it began with; None where that is not known."""
        section = (self.options or {}).get("env_settings")
        seed = section.get("seed") if isinstance(section, dict) else None
        return seed if isinstance(seed, int) and seed >= 0 else None

    def setting(self, behavior: str, key: str) -> Any:
        """A setting of a behavior, or else of all; None where that is not known."""
        options = self.options or {}
        behaviors = options.get("behaviors")
        own = behaviors.get(behavior) if isinstance(behaviors, dict) else None
        settings = own or options.get("default_settings")
        return settings.get(key) if isinstance(settings, dict) else None


CurveAxis = Literal["steps", "env_steps"]
"""The x axis of curves: a behavior's agent steps, or environment steps."""


def find_run(text: str, results_dir: Path) -> Path:
    """The folder of a run: its id in the results folder, or a path.

    Raises:
        UserError: neither is the folder of a run.
    """
    folder = run_path(text, results_dir)
    if is_run(folder):
        return folder
    if not folder.exists():
        raise UserError(missing_run(folder.parent, folder.name))
    inside = [entry.name for entry in sorted(folder.iterdir()) if is_run(entry)] if folder.is_dir() else []
    hint = f"; it holds runs: {', '.join(inside[:5])}" if inside else ""
    raise UserError(
        f"'{folder}' is no folder of a run: expected configuration.yaml, metrics.jsonl or TensorBoard's event files of "
        f"a behavior in it{hint}"
    )


def find_runs(texts: Sequence[str], results_dir: Path) -> list[Path]:
    """The folders of runs, each once. Patterns such as ``walker-*`` are of run ids, or of paths.

    An id that is no run itself stands for its runs with several seeds: ``walker`` for ``walker-1``, ``walker-2`` …

    Raises:
        UserError: a text is not of a run.
    """
    paths = [find_run(text, results_dir) for pattern in texts for text in _matches(pattern, results_dir)]
    return [*{path.resolve(): path for path in paths}.values()]


def _matches(text: str, results_dir: Path) -> list[str]:
    """Expands a pattern, because shells of Windows leave that to programs. Returns the text itself without a match."""
    if not glob.has_magic(text):
        return _runs_with_seeds(text, results_dir) or [text]
    patterns = (str(results_dir / text), text)
    return next((paths for pattern in patterns if (paths := sorted(glob.glob(pattern)))), [text])


def _runs_with_seeds(run_id: str, results_dir: Path) -> list[str]:
    """The ids, or the paths, of the runs with several seeds of an id; empty where it is a run itself, or none."""
    if is_run(results_dir / run_id) or is_run(Path(run_id)):
        return []
    for base in (results_dir, Path()):
        parent, name = (base / run_id).parent, (base / run_id).name
        entries = parent.glob(f"{glob.escape(name)}-*") if parent.is_dir() and name else ()
        seeds = {
            int(seed): entry
            for entry in entries
            if (seed := entry.name[len(name) + 1 :]).isdecimal() and is_run(entry)
        }
        if seeds:
            return [str(path) for _, path in sorted(seeds.items())]
    return []


def is_run(path: Path) -> bool:
    """Whether this trainer or ML-Agents made a run there."""
    layout = RunLayout(path)
    return path.is_dir() and (
        layout.configuration.is_file() or layout.metrics.is_file() or bool(_event_folders(path))
    )


def read_run(path: Path, x: CurveAxis = "steps") -> RunRecord:
    """Reads a run, which may still be running. Its event files count where it has no metrics.jsonl, as with ML-Agents.

    x: the steps of curves: agent steps, or environment steps.

    Raises:
        UserError: a file cannot be read, or has no environment steps.
    """
    layout = RunLayout(path)
    rows = read_rows(layout.metrics)
    if x == "env_steps":
        if not any(x in row for row in rows):
            raise UserError(
                f"'{path}' has no environment steps (env_steps in metrics.jsonl): compare it over agent steps"
            )
        options = _options(layout.configuration)
        return RunRecord(path, OURS, options, _curves({**row, "step": row.get(x)} for row in rows))
    events = (
        {} if rows else {folder.name: _named(read_event_files(folder)) for folder in _event_folders(path)}
    )
    curves = _merged(_curves(rows), _curves(read_rows(layout.evaluations), prefix=_EVALUATION), events)
    is_theirs = bool(events) and not layout.trainer_log.is_file()
    return RunRecord(path, ML_AGENTS if is_theirs else OURS, _options(layout.configuration), curves)


def metric_of(tag: str) -> str:
    """The name of a metric by its tag in TensorBoard: ``mean_return`` for ``Environment/Cumulative Reward``."""
    if tag.startswith(MEMBER_REWARD):
        return _MEMBER + tag.removeprefix(MEMBER_REWARD)
    return _METRIC_OF_TAG.get(tag) or json_key(tag)


def _named(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    return {metric_of(tag): curve for tag, curve in curves.items()}


def _merged(*parts: Curves) -> Curves:
    behaviors = dict.fromkeys(name for part in parts for name in part)
    return {name: {key: at for part in parts for key, at in part.get(name, {}).items()} for name in behaviors}


def _event_folders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir()) if entry.is_dir() and has_event_files(entry)]


def _options(path: Path) -> Mapping[str, Any] | None:
    try:
        return read_document(path).values
    except ConfigError:
        return None


class _Point(NamedTuple):
    step: int
    seconds: float
    value: float


def _curves(rows: Iterable[Mapping[str, Any]], prefix: str = "") -> Curves:
    """The curves in the lines of metrics.jsonl or evaluations.jsonl; values that are no numbers are ignored."""
    points: dict[str, dict[str, list[_Point]]] = {}
    for row, seconds in _on_one_clock(rows):
        behavior, step = row.get("behavior"), row.get("step")
        if not (isinstance(behavior, str) and isinstance(step, int) and 0 <= step < _MOST_STEPS):
            continue
        own = points.setdefault(behavior, {})
        for key, value in _numbers(row):
            own.setdefault(prefix + key, []).append(_Point(step, seconds, value))
    return {
        name: {key: Curve.of(values) for key, values in metrics.items()} for name, metrics in points.items()
    }


def _on_one_clock(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Yields the rows with continuous seconds, although ``wall_s`` starts at 0 in every process."""
    before = past = 0.0
    for row in rows:
        told = row.get("wall_s")
        now = float(told) if is_number(told) else before
        if now < before:
            past += before
        before = now
        yield row, past + now


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        if is_number(value) and key not in _NO_METRICS:
            yield key, float(value)
    members = row.get("member_returns")
    for name, value in members.items() if isinstance(members, dict) else ():
        if is_number(value):
            yield _MEMBER + name, float(value)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value of a file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
