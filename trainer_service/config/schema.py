"""The configuration as JSON Schema, so that editors complete keys and mark mistakes while one types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from trainer_service.config.environment_parameters import SAMPLERS
from trainer_service.config.hyperparameters import HYPERPARAMETERS
from trainer_service.config.rewards import REWARD_SIGNALS
from trainer_service.config.run_options import RunOptions

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a YAML file (draft 2020-12)."""
    models: list[type[BaseModel]] = [
        RunOptions,
        *HYPERPARAMETERS.values(),
        *REWARD_SIGNALS.values(),
        *SAMPLERS.values(),
    ]
    _, schema = models_json_schema([(model, "validation") for model in models])
    definitions = schema["$defs"]
    _choose_by_sibling(definitions["TrainerSettings"], "trainer_type", "hyperparameters", HYPERPARAMETERS)
    _choose_by_sibling(definitions["Sampler"], "sampler_type", "sampler_parameters", SAMPLERS)
    signals = definitions["TrainerSettings"]["properties"]["reward_signals"]
    signals["properties"] = {name: _reference(model) for name, model in REWARD_SIGNALS.items()}
    signals["additionalProperties"] = False
    return {"$schema": _DIALECT, "$defs": definitions, **_reference(RunOptions)}


def _choose_by_sibling(
    section: dict[str, Any], kind_key: str, key: str, models: Mapping[str, type[BaseModel]]
) -> None:
    """Says that what is allowed under ``key`` depends on what stands under ``kind_key`` beside it."""
    section["properties"][kind_key]["enum"] = list(models)
    del section["properties"][key]["$ref"]
    section["allOf"] = [
        {
            "if": {"properties": {kind_key: {"const": kind}}},
            "then": {"properties": {key: _reference(model)}},
        }
        for kind, model in models.items()
    ]


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/$defs/{model.__name__}"}
