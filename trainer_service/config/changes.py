"""Which settings decide how large networks are, and how they differ between two configurations of a behavior."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_service.config.trainer import TrainerSettings

_NETWORK_KEYS = frozenset({
    "shared_critic", "group_size", "share", "agent_ids", "state", "value_normalization", "dueling", "mixer_units",
    "hypernet_units", "thought_units", "message_units", "use_actions", "use_vail",
})  # fmt: skip
"""Keys besides ``network_settings`` on which the names and shapes of weights depend."""

_WITHOUT_WEIGHTS = frozenset({"deterministic", "sequence_length"})
"""Keys within ``network_settings`` that no weight depends on."""


def changed_networks(before: TrainerSettings, now: TrainerSettings) -> list[str]:
    """Every setting that networks depend on and that differs: ``network_settings.hidden_units was 16, now 8``."""
    old, new = dict(_flattened(before.model_dump(mode="json"))), dict(_flattened(now.model_dump(mode="json")))
    keys = [key for key in dict.fromkeys([*old, *new]) if _shapes(key)]
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


def _shapes(path: str) -> bool:
    *sections, key = path.split(".")
    if "network_settings" in sections:
        return key not in _WITHOUT_WEIGHTS
    return key in _NETWORK_KEYS or sections == ["reward_signals"]


def _value_in_words(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "not set")
    return str(value).lower() if isinstance(value, bool) else str(value)
