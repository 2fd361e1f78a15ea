"""Which settings decide how large networks are, and how they differ between two configurations of a behavior."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_service.config.section import Section
from trainer_service.config.trainer import TrainerSettings
from trainer_service.config.values import SHAPES_WEIGHTS

_WITHOUT_WEIGHTS = frozenset({"deterministic", "sequence_length"})
"""Keys within ``network_settings`` that no weight depends on."""


def changed_networks(before: TrainerSettings, now: TrainerSettings) -> list[str]:
    """Every setting that networks depend on and that differs: ``network_settings.hidden_units was 16, now 8``."""
    old, new = dict(_flattened(before.model_dump(mode="json"))), dict(_flattened(now.model_dump(mode="json")))
    marked = {*_marked_keys(before), *_marked_keys(now)}
    keys = [key for key in dict.fromkeys([*old, *new]) if key in marked or _is_of_network(key)]
    changed = [key for key in keys if old.get(key) != new.get(key)]
    # Of a section that is there only now, or no longer, its keys need not be reported too.
    reported = [key for key in changed if not any(key.startswith(f"{section}.") for section in changed)]
    return [f"{key} was {_value_in_words(old, key)}, now {_value_in_words(new, key)}" for key in reported]


def _flattened(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Values by their whole key. A section counts as a value too: it may be there or not."""
    for key, value in section.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping):
            yield path, "set"
            yield from _flattened(value, f"{path}.")
        elif value is not None:
            yield path, value


def _marked_keys(settings: TrainerSettings) -> Iterator[str]:
    """Keys of the hyperparameters and reward signals whose types are ``ShapesWeights``."""
    sections: dict[str, Section] = {"hyperparameters": settings.hyperparameters}
    sections |= {f"reward_signals.{name}": signal for name, signal in settings.reward_signals.items()}
    for path, section in sections.items():
        for key, field in type(section).model_fields.items():
            if SHAPES_WEIGHTS in field.metadata:
                yield f"{path}.{key}"


def _is_of_network(path: str) -> bool:
    """Whether it is a key of some ``network_settings`` on which weights depend, or a reward signal itself."""
    *sections, key = path.split(".")
    if "network_settings" in sections:
        return key not in _WITHOUT_WEIGHTS
    return sections == ["reward_signals"]


def _value_in_words(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "not set")
    return str(value).lower() if isinstance(value, bool) else str(value)
