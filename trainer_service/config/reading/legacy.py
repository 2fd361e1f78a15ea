"""Keys and spellings of other ML-Agents versions: accepted with a warning, and translated where they matter."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from trainer_service.config.reading.document import Problem
from trainer_service.config.section import Location

IGNORED_IN_BEHAVIOR = {
    "framework": "deprecated and ignored: PyTorch is the only framework",
    "output_path": "ignored: ML-Agents dropped this key; the run id says where results go",
}
EMPTY_MEANS_DEFAULTS = ("hyperparameters", "network_settings", "reward_signals")
EMPTY_MEANS_DEFAULTS_ON_TOP = (
    "behaviors",
    "teams",
    "env_settings",
    "engine_settings",
    "checkpoint_settings",
    "torch_settings",
)
SAMPLERS_ALSO_CALLED = {"multirange_uniform": "multirangeuniform"}
"""ML-Agents' documents spell one sampler differently from its code."""


def modernized(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Returns a copy of ``raw`` in today's spelling, and warnings. Malformed parts pass through unchanged."""
    options = copy.deepcopy(dict(raw))
    _drop_empty(options, EMPTY_MEANS_DEFAULTS_ON_TOP)
    _empty_entries_to_mappings(options.get("behaviors"))
    notices: list[Problem] = []
    for location, behavior in _behaviors(options):
        _modernize_behavior(behavior, location, notices)
    for location, parameter in _mappings(options.get("environment_parameters"), ("environment_parameters",)):
        _modernize_parameter(parameter, location, notices)
    return options, notices


def _behaviors(options: dict[str, Any]) -> Iterator[tuple[Location, dict[str, Any]]]:
    if isinstance(defaults := options.get("default_settings"), dict):
        yield ("default_settings",), defaults
    yield from _mappings(options.get("behaviors"), ("behaviors",))


def _mappings(section: Any, location: Location) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Yields the entries of a mapping or list that are mappings themselves."""
    if isinstance(section, dict):
        yield from (((*location, key), value) for key, value in section.items() if isinstance(value, dict))
    elif isinstance(section, list):
        yield from (((*location, i), value) for i, value in enumerate(section) if isinstance(value, dict))


def _drop_empty(section: dict[str, Any], keys: tuple[str, ...]) -> None:
    """Removes keys with nothing after them, such as ``env_settings:``."""
    for key in keys:
        if key in section and section[key] is None:
            del section[key]


def _empty_entries_to_mappings(section: Any) -> None:
    """Replaces entries with nothing after them, such as ``Walker:``, by empty mappings."""
    if isinstance(section, dict):
        section.update({key: {} for key, value in section.items() if value is None})


def _modernize_behavior(behavior: dict[str, Any], location: Location, notices: list[Problem]) -> None:
    _drop_empty(behavior, EMPTY_MEANS_DEFAULTS)
    for key, reason in IGNORED_IN_BEHAVIOR.items():
        if key in behavior:
            del behavior[key]
            notices.append(Problem((*location, key), reason))
    hyperparameters = behavior.get("hyperparameters")
    if isinstance(hyperparameters, dict) and "reward_signal_num_update" in hyperparameters:
        del hyperparameters["reward_signal_num_update"]
        notices.append(
            Problem(
                (*location, "hyperparameters", "reward_signal_num_update"),
                "ignored: replaced by reward_signal_steps_per_update",
            )
        )
    _modernize_network(behavior.get("network_settings"), (*location, "network_settings"), notices)
    _empty_entries_to_mappings(behavior.get("reward_signals"))
    for where, signal in _mappings(behavior.get("reward_signals"), (*location, "reward_signals")):
        _modernize_reward_signal(signal, where, notices)


def _modernize_network(network: Any, location: Location, notices: list[Problem]) -> None:
    if not isinstance(network, dict) or "conditioning_type" not in network:
        return
    value = network.pop("conditioning_type")
    used = network.setdefault("goal_conditioning_type", value) is value
    verdict = "read as goal_conditioning_type" if used else "ignored: goal_conditioning_type is given too"
    notices.append(Problem((*location, "conditioning_type"), verdict))


def _modernize_reward_signal(signal: dict[str, Any], location: Location, notices: list[Problem]) -> None:
    _drop_empty(signal, ("network_settings", "encoding_size"))
    if "encoding_size" in signal and location[-1] != "extrinsic":
        size = signal.pop("encoding_size")
        verdict = "deprecated, ignored: network_settings are given too"
        if "network_settings" not in signal:
            signal["network_settings"] = {"hidden_units": size}
            verdict = "deprecated, read as network_settings.hidden_units"
        notices.append(Problem((*location, "encoding_size"), verdict))
    network = signal.get("network_settings")
    _modernize_network(network, (*location, "network_settings"), notices)
    if isinstance(network, dict) and network.get("memory") is not None:
        network["memory"] = None
        notices.append(
            Problem(
                (*location, "network_settings", "memory"),
                "ignored: networks of reward signals have no memory",
            )
        )


def _modernize_parameter(parameter: dict[str, Any], location: Location, notices: list[Problem]) -> None:
    _modernize_sampler(parameter)
    lessons = parameter.get("curriculum")
    if not isinstance(lessons, list):
        return
    for position, lesson in enumerate(lessons):
        if (named := _lesson_with_name(lesson)) is not None:
            lessons[position] = named
            text = f"an old spelling, read as '- name: {named['name']}' with its keys beside it"
            notices.append(Problem((*location, "curriculum", position), text))
    for where, lesson in _mappings(lessons, (*location, "curriculum")):
        if isinstance(lesson.get("value"), dict):
            _modernize_sampler(lesson["value"])
        if where[-1] == len(lessons) - 1 and lesson.get("completion_criteria") is not None:
            lesson["completion_criteria"] = None
            notices.append(
                Problem((*where, "completion_criteria"), "ignored: nothing comes after the last lesson")
            )


def _lesson_with_name(lesson: Any) -> dict[str, Any] | None:
    """``- Lesson0: {value: …}``, as ML-Agents' own converter of old files writes it, in today's form."""
    if not isinstance(lesson, dict) or len(lesson) != 1:
        return None
    ((name, keys),) = lesson.items()
    return {"name": name, **keys} if isinstance(keys, dict) and "value" in keys else None


def _modernize_sampler(sampler: dict[str, Any]) -> None:
    kind = sampler.get("sampler_type")
    if isinstance(kind, str):
        sampler["sampler_type"] = SAMPLERS_ALSO_CALLED.get(kind, kind)
