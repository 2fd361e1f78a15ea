"""The configuration as JSON Schema, by which editors complete keys and mark mistakes.

Draft 7, which every editor supports. Editors read YAML 1.2, where ``3e-4`` is a number, so numbers are numbers here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from trainer_service.config.environment_parameters import SAMPLERS
from trainer_service.config.hyperparameters.common import OPTIMIZER_PLUGINS
from trainer_service.config.hyperparameters.off_policy import REPLAY_PLUGINS, SACSettings
from trainer_service.config.hyperparameters.registry import (
    ALGORITHM_PLUGINS,
    HYPERPARAMETERS,
    hyperparameters_of,
)
from trainer_service.config.network import ENCODER_PLUGINS, OBSERVATION_ENCODER_PLUGINS, NetworkSettings
from trainer_service.config.reading.legacy import (
    EMPTY_MEANS_DEFAULTS,
    EMPTY_MEANS_DEFAULTS_ON_TOP,
    IGNORED_IN_BEHAVIOR,
    SAMPLERS_ALSO_CALLED,
)
from trainer_service.config.rewards import (
    REWARD_SIGNAL_PLUGINS,
    REWARD_SIGNALS,
    ExtrinsicSettings,
    reward_signal_settings,
)
from trainer_service.config.run_options import RunOptions
from trainer_service.config.trainer import TrainerSettings
from unity_bridge.errors import PluginError
from unity_bridge.plugins import PluginGroup

_logger = logging.getLogger(__name__)

_DIALECT = "http://json-schema.org/draft-07/schema#"
_NOTHING = {"type": "null"}
_NEVER_EMPTY = {"RunOptions", "CurriculumSettings", "Lesson", "Sampler", "SamplerParameters"} | {
    model.__name__ for model in SAMPLERS.values()
}


def json_schema(*, plugins: bool = False) -> dict[str, Any]:
    """Returns the schema of a YAML file.

    plugins: whether it includes the settings of installed plugins. A plugin that cannot be loaded is left out, with a
    warning.
    """
    trainer_types = {
        name: HYPERPARAMETERS[name] for name in HYPERPARAMETERS if name in ALGORITHM_PLUGINS.built_in
    }
    signals = {
        name: REWARD_SIGNALS[name] for name in REWARD_SIGNALS if name in REWARD_SIGNAL_PLUGINS.built_in
    }
    models: list[type[BaseModel]] = [
        RunOptions, *trainer_types.values(), *signals.values(), *SAMPLERS.values()
    ]  # fmt: skip
    _, schema = models_json_schema([(model, "validation") for model in models])
    definitions = schema["$defs"]
    trainer, sampler = definitions["TrainerSettings"], definitions["Sampler"]
    settings_of, signal_of = _references(trainer_types), _references(signals)
    if plugins:
        settings_of |= _of_plugins(ALGORITHM_PLUGINS, hyperparameters_of, definitions)
        signal_of |= _of_plugins(REWARD_SIGNAL_PLUGINS, reward_signal_settings, definitions)
        for definition in definitions.values():
            if "optimizer" in definition.get("properties", {}):
                definition["properties"]["optimizer"]["enum"] += [*OPTIMIZER_PLUGINS.offered()]
        network = definitions["NetworkSettings"]["properties"]
        network["vis_encode_type"]["enum"] += [*ENCODER_PLUGINS.offered()]
        if encoders := OBSERVATION_ENCODER_PLUGINS.offered():
            network["encoder"]["enum"] = [None, *encoders]
        definitions["ReplaySettings"]["properties"]["type"]["enum"] += [*REPLAY_PLUGINS.offered()]
    _choose_by_sibling(trainer, "trainer_type", "hyperparameters", settings_of)
    _choose_by_sibling(sampler, "sampler_type", "sampler_parameters", _references(_samplers_by_any_name()))
    trainer["properties"]["reward_signals"] |= {"properties": signal_of, "additionalProperties": False}
    _accept_what_is_old(definitions)
    _accept_what_is_empty(definitions)
    return {
        "$schema": _DIALECT,
        "title": "Configuration of a training run",
        "allOf": [_reference(RunOptions.__name__)],
        "$defs": {name: _tidied(definition) for name, definition in sorted(definitions.items())},
    }


def _samplers_by_any_name() -> dict[str, type[BaseModel]]:
    return {**SAMPLERS, **{alias: SAMPLERS[name] for alias, name in SAMPLERS_ALSO_CALLED.items()}}


def _references(models: Mapping[str, type[BaseModel]]) -> dict[str, dict[str, str]]:
    return {name: _reference(model.__name__) for name, model in models.items()}


def _of_plugins(
    group: PluginGroup, settings_of: Callable[[str], type[BaseModel] | None], definitions: dict[str, Any]
) -> dict[str, dict[str, str]]:
    """Adds the definitions of a group's settings. Returns references to them, by the plugins' names."""
    references = {}
    for number, name in enumerate(group.offered()):
        try:
            model = settings_of(name)
        except PluginError as error:
            _logger.warning("%s. The schema is without it.", error)
            continue
        if model is not None:
            own = model.model_json_schema()
            for nested, definition in own.pop("$defs", {}).items():
                definitions.setdefault(nested, definition)
            # A class of ours, or of another plugin, may be called the same.
            key = f"{model.__name__}.{group.group.rpartition('.')[2]}.{number}"
            definitions[key] = own
            references[name] = _reference(key)
    return references


def _choose_by_sibling(
    section: dict[str, Any], kind_key: str, key: str, references: Mapping[str, dict[str, str]]
) -> None:
    """Makes the schema of ``key`` depend on the value of the neighboring ``kind_key``.

    Without that value, which may come from default_settings, any of the models is allowed.
    """
    section["properties"][kind_key]["enum"] = list(references)
    del section["properties"][key]["$ref"]
    section["allOf"] = [
        {
            "if": {"properties": {kind_key: {"const": kind}}, "required": [kind_key]},
            "then": {"properties": {key: reference}},
        }
        for kind, reference in references.items()
    ]
    any_of = list({reference["$ref"]: reference for reference in references.values()}.values())
    section["allOf"].append(
        {
            "if": {"not": {"required": [kind_key]}},
            "then": {"properties": {key: {"anyOf": any_of}}},
        }
    )


def _accept_what_is_old(definitions: dict[str, Any]) -> None:
    """Adds keys that are read, or ignored, with a warning."""
    old: list[tuple[type[BaseModel], str, str]] = [
        *((TrainerSettings, key, reason) for key, reason in IGNORED_IN_BEHAVIOR.items()),
        (SACSettings, "reward_signal_num_update", "ignored: replaced by reward_signal_steps_per_update"),
        (NetworkSettings, "conditioning_type", "read as goal_conditioning_type"),
        *(
            (model, "encoding_size", "deprecated: use network_settings.hidden_units")
            for name, model in REWARD_SIGNALS.items()
            if name in REWARD_SIGNAL_PLUGINS.built_in and model is not ExtrinsicSettings
        ),
    ]
    for model, key, reason in old:
        definitions[model.__name__]["properties"][key] = {"description": reason, "deprecationMessage": reason}


def _accept_what_is_empty(definitions: dict[str, Any]) -> None:
    """Allows keys with nothing after them: most sections then have their defaults, or are absent."""
    for name, definition in definitions.items():
        if name not in _NEVER_EMPTY:
            definition["type"] = ["object", "null"]
    for key in EMPTY_MEANS_DEFAULTS_ON_TOP:
        _let_be_empty(definitions["RunOptions"]["properties"][key])
    for key in EMPTY_MEANS_DEFAULTS:
        _let_be_empty(definitions["TrainerSettings"]["properties"][key])


def _let_be_empty(schema: dict[str, Any]) -> None:
    if schema.get("type") == "object":
        schema["type"] = ["object", "null"]


def _tidied(node: Any) -> Any:
    """Returns a schema without repetitions: titles made of names, and defaults of whole sections."""
    if isinstance(node, list):
        return [_tidied(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _tidied(value) for key, value in node.items() if not _repeats(key, value)}
    if isinstance(description := kept.get("description"), str):
        kept["description"] = " ".join(description.replace("``", "`").split())
    if kept.get("anyOf", [])[1:] == [_NOTHING]:
        kept = {**kept.pop("anyOf")[0], **kept}
        _add_nothing(kept)
    if "prefixItems" in kept:  # newer than draft 7; all our tuples have one kind of item
        kept["items"] = kept.pop("prefixItems")[0]
    return kept


def _add_nothing(schema: dict[str, Any]) -> None:
    """Allows null in the form that gives clearer messages in editors than ``anyOf``. A $ref allows null already."""
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        schema["type"] = [*kinds, "null"]


def _repeats(key: str, value: Any) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and isinstance(value, dict))


def _reference(definition: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{definition}"}
