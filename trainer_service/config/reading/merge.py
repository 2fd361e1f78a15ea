"""The merge of defaults, behaviors and the command line, before validation.

Raw mappings are merged, not validated settings: a default must not count as written when a behavior changes its
trainer type, or when a schedule follows the learning rate's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_service.config.hyperparameters.registry import hyperparameters_of
from unity_bridge.errors import PluginError

_DEFAULT_TRAINER_TYPE = "ppo"


def combined(raw: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Lays the command line over the file's mapping, and every behavior over ``default_settings``."""
    return _with_inheritance(_with_command_line(raw, overrides))


def _with_command_line(raw: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    sections = {key: value for key, value in overrides.items() if key not in ("deterministic", "max_steps")}
    raw = {**raw, **{key: _override(raw.get(key), value) for key, value in sections.items()}}
    changes: dict[str, Any] = {}
    if overrides.get("deterministic"):
        changes["network_settings"] = {"deterministic": True}
    if "max_steps" in overrides:
        changes["max_steps"] = overrides["max_steps"]
        if not raw.get("behaviors") and raw.get("default_settings") is None:
            raw["default_settings"] = {}
    if changes:
        if raw.get("default_settings") is not None:
            raw["default_settings"] = _changed(raw["default_settings"], changes)
        if isinstance(behaviors := raw.get("behaviors"), Mapping):
            raw["behaviors"] = {name: _changed(each or {}, changes) for name, each in behaviors.items()}
    return raw


def _override(base: Any, over: Any) -> Any:
    """Lays ``over`` on ``base``; a malformed section stays, to be reported."""
    if isinstance(over, Mapping) and base is not None:
        return merged(base, over) if isinstance(base, Mapping) else base
    return over


def _changed(behavior: Any, changes: Mapping[str, Any]) -> Any:
    if not isinstance(behavior, Mapping):
        return behavior
    return {**behavior, **{key: _override(behavior.get(key), value) for key, value in changes.items()}}


def _with_inheritance(raw: dict[str, Any]) -> dict[str, Any]:
    behaviors, defaults = raw.get("behaviors"), raw.get("default_settings")
    if not isinstance(behaviors, Mapping):
        return raw
    return {**raw, "behaviors": {name: _with_defaults(defaults, own) for name, own in behaviors.items()}}


def _with_defaults(default_settings: Any, behavior: Any) -> Any:
    """Lays one behavior's mapping over ``default_settings``.

    As in ML-Agents a behavior inherits the default's reward signals, memory, cloning and self-play. Unlike
    there it may change the trainer type: hyperparameters that the new type does not have are left behind.
    """
    if not isinstance(default_settings, Mapping) or not isinstance(behavior, Mapping):
        return behavior
    inherited = {"reward_signals": {"extrinsic": {}}, **default_settings}
    trainer_type = behavior.get("trainer_type", _trainer_type_of(inherited))
    if trainer_type != _trainer_type_of(inherited):
        inherited["hyperparameters"] = _known_to(trainer_type, inherited.get("hyperparameters", {}))
    return merged(inherited, behavior)


def _trainer_type_of(settings: Mapping[str, Any]) -> Any:
    """Returns the trainer type of a behavior's mapping."""
    return settings.get("trainer_type", _DEFAULT_TRAINER_TYPE)


def _known_to(trainer_type: Any, hyperparameters: Any) -> Any:
    try:
        model = hyperparameters_of(trainer_type) if isinstance(trainer_type, str) else None
    except PluginError:
        model = None  # reported where the trainer type stands
    if model is None or not isinstance(hyperparameters, Mapping):
        return hyperparameters
    return {key: value for key, value in hyperparameters.items() if key in model.model_fields}


def merged(base: Any, over: Any) -> Any:
    """Lays ``over`` on ``base``: mappings merge key by key, everything else replaces."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}
