"""Differences between two configurations of a behavior in settings that shape its networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_service.config.section import Section
from trainer_service.config.trainer import TrainerSettings
from trainer_service.config.values import SHAPES_WEIGHTS

_WITHOUT_WEIGHTS = frozenset({"deterministic", "sequence_length"})
"""Keys within ``network_settings`` that no weight depends on."""


def changed_networks(before: TrainerSettings, now: TrainerSettings) -> list[str]:
    """Describes every changed setting that networks depend on: ``network_settings.hidden_units was 16, now 8``."""
    return list(_changes(before, now).values())


def changed_activations(before: TrainerSettings, now: TrainerSettings) -> list[str]:
    """Describes changed activations alone. Weights fit whatever the activation is, but are of another function then."""
    return [change for key, change in _changes(before, now).items() if key.endswith(".activation")]


def _changes(before: TrainerSettings, now: TrainerSettings) -> dict[str, str]:
    """Returns descriptions of changed settings that networks depend on, by their full key."""
    old, new = dict(_flattened(before.model_dump(mode="json"))), dict(_flattened(now.model_dump(mode="json")))
    marked = {*_marked_keys(before), *_marked_keys(now)}
    keys = [key for key in dict.fromkeys([*old, *new]) if key in marked or _is_of_network(key)]
    changed = [key for key in keys if old.get(key) != new.get(key)]
    # A section that was added or removed is reported alone, without its keys.
    reported = [key for key in changed if not any(key.startswith(f"{section}.") for section in changed)]
    return {
        key: f"{key} was {_value_in_words(old, key)}, now {_value_in_words(new, key)}" for key in reported
    }


def _flattened(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields values by their full key. A section counts as a value too, for it may be absent."""
    for key, value in section.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping):
            yield path, "set"
            yield from _flattened(value, f"{path}.")
        elif value is not None:
            yield path, value


def _marked_keys(settings: TrainerSettings) -> Iterator[str]:
    """Yields the full keys of type ``ShapesWeights`` of hyperparameters and reward signals."""
    sections: dict[str, Section] = {"hyperparameters": settings.hyperparameters}
    sections |= {f"reward_signals.{name}": signal for name, signal in settings.reward_signals.items()}
    for path, section in sections.items():
        for key, field in type(section).model_fields.items():
            if SHAPES_WEIGHTS in field.metadata:
                yield f"{path}.{key}"


def _is_of_network(path: str) -> bool:
    """Whether a full key is one of ``network_settings`` that weights depend on, or a reward signal."""
    *sections, key = path.split(".")
    if "network_settings" in sections:
        # The task's own rewards have settings of a network, as all signals do, but none that they would be of.
        return key not in _WITHOUT_WEIGHTS and sections[:2] != ["reward_signals", "extrinsic"]
    return sections == ["reward_signals"]


def _value_in_words(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "not set")
    return str(value).lower() if isinstance(value, bool) else str(value)
