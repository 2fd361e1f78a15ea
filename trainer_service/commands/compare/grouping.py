"""Groups of runs that are samples of one method: runs that differ in their seed only."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainer_service.commands.common.run_record import RunRecord

GroupBy = Literal["config", "name", "run"]

_OF_THE_PROCESS: Mapping[str, frozenset[str]] = {
    "env_settings": frozenset(
        {
            "base_port", "isolate", "timeout_wait", "max_lifetime_restarts", "restarts_rate_limit_n",
            "restarts_rate_limit_period_s",
        }
    ),
    "checkpoint_settings": frozenset(
        {
            "run_id", "results_dir", "resume", "force", "load_model", "train_model", "inference", "autosave_interval_s",
            "write_path", "maybe_init_path",
        }
    ),
}  # fmt: skip
"""Settings of a run's files, simulators and machine, which do not change the method."""

_REPORTING = frozenset({"debug", "track", "log_format", "metrics_port"})
"""Sections about the reports of a run."""

_SEED = "seed"
"""Keys of this name, wherever they stand: samplers may have seeds, too."""

_NUMBER_OF_SEED = re.compile(r"(?:[-_. ](?:s|run)|[-_. ]?seed)?[-_. =]*\d+$")
"""The end of a run id that numbers it: ``walker-seed3``, ``walker_2``, ``walker-s=1``."""

_ABSENT = "–"


@dataclass(frozen=True, slots=True, eq=False)
class RunGroup:
    """Runs that are samples of one method."""

    name: str
    runs: tuple[RunRecord, ...]
    strata: tuple[int, ...]
    """A number for each run, equal for runs that differ in their seed only."""


def group_runs(runs: Sequence[RunRecord], by: GroupBy) -> list[RunGroup]:
    """Groups runs, in the order in which the first of each group comes.

    Args:
        runs: not empty.
        by: ``config`` groups runs whose configurations are equal but for seeds; ``name`` those whose ids are, up to a
            number at the end; ``run`` none.
    """
    keys: Mapping[GroupBy, Callable[[RunRecord], Hashable]] = {
        "config": method_of,
        "name": lambda run: _NUMBER_OF_SEED.sub("", run.name),
        "run": lambda run: run.path,
    }
    groups: dict[Hashable, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(keys[by](run), []).append(run)
    names = _names(list(groups.values()))
    return [
        RunGroup(name, tuple(own), _strata(own)) for name, own in zip(names, groups.values(), strict=True)
    ]


def method_of(run: RunRecord) -> Hashable:
    """Returns a key that is equal for runs that differ in their seed only. Without a configuration it is unique."""
    if run.options is None:
        return run.path
    return (run.trainer, _frozen(_method(run.options)))


def differing_settings(groups: Sequence[RunGroup]) -> dict[str, tuple[str, ...]]:
    """The settings in which the first runs of groups differ, by their path, with the value of each group.

    Between trainers only settings that both know are compared: their defaults are written out by one, not by the other.
    """
    first = [group.runs[0] for group in groups]
    known = [_method(run.options) for run in first if run.options is not None]
    if len(first) < 2 or len(known) < len(first):
        return {}
    trainers = tuple(run.trainer for run in first)
    several = len(set(trainers)) > 1
    found = {"trainer": trainers} if several else {}
    for path in dict.fromkeys(path for options in known for path in _leaves(options)):
        values = tuple(_shown(_value_at(options, path)) for options in known)
        if len(set(values)) > 1 and not (several and _ABSENT in values):
            found[".".join(path)] = values
    return found


def _names(groups: Sequence[Sequence[RunRecord]]) -> list[str]:
    """A name for each group: what its run ids have in common; where two would be called alike, all run ids of each."""
    short = [_common_name([run.name for run in group]) for group in groups]
    return [
        name if name and short.count(name) == 1 else _listed(group)
        for name, group in zip(short, groups, strict=True)
    ]


def _common_name(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    columns = zip(*(_NUMBER_OF_SEED.sub("", name) for name in names), strict=False)
    common = "".join(letters[0] for letters in itertools.takewhile(lambda each: len(set(each)) == 1, columns))
    return re.sub(r"[-_. =]+$", "", common)


def _listed(group: Sequence[RunRecord]) -> str:
    """The paths of runs: two may have one run id, in different folders."""
    paths = [str(run.path) for run in group]
    return paths[0] if len(paths) == 1 else f"{paths[0]} … {paths[-1]}"


def _strata(runs: Sequence[RunRecord]) -> tuple[int, ...]:
    methods = [method_of(run) for run in runs]
    return tuple(methods.index(method) for method in methods)


def _method(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options without those of the process, and without seeds."""
    kept = {
        name: {key: value for key, value in section.items() if key not in _OF_THE_PROCESS.get(name, ())}
        if isinstance(section, dict)
        else section
        for name, section in options.items()
        if name not in _REPORTING
    }
    without: Mapping[str, Any] = _without_seeds(kept)
    return without


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seeds(inner) for key, inner in value.items() if key != _SEED}
    if isinstance(value, list):
        return [_without_seeds(inner) for inner in value]
    return value


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return frozenset((key, _frozen(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return _shown(value)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, str(key)))]
    return [path]


def _value_at(options: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(options, dict) or key not in options:
            return _ABSENT
        options = options[key]
    return options


def _shown(value: Any) -> str:
    """A setting as text; 20 and 20.0 are one."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return "{…}" if isinstance(value, dict) and value else str(value)
