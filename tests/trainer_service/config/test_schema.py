from __future__ import annotations

import json
from typing import Any

from trainer_service.config import HYPERPARAMETERS, REWARD_SIGNALS, json_schema


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    if isinstance(node, list):
        return [found for value in node for found in references(value)]
    return []


def test_the_schema_is_json_and_every_reference_in_it_resolves() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["$ref"] == "#/$defs/RunOptions"
    for reference in references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_the_hyperparameters_depend_on_the_trainer_type() -> None:
    behavior = json_schema()["$defs"]["TrainerSettings"]
    branches = {
        branch["if"]["properties"]["trainer_type"]["const"]: branch["then"]["properties"]["hyperparameters"]
        for branch in behavior["allOf"]
    }
    assert branches == {
        kind: {"$ref": f"#/$defs/{model.__name__}"} for kind, model in HYPERPARAMETERS.items()
    }


def test_unknown_keys_and_signals_are_marked_while_typing() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["PPOSettings"]["additionalProperties"] is False
    signals = definitions["TrainerSettings"]["properties"]["reward_signals"]
    assert set(signals["properties"]) == set(REWARD_SIGNALS)
    assert signals["additionalProperties"] is False


def test_every_key_is_explained_and_bounds_are_kept() -> None:
    definitions = json_schema()["$defs"]
    for name, definition in definitions.items():
        for key, value in definition.get("properties", {}).items():
            assert value.get("description"), f"{name}.{key} has no description"
    assert definitions["PPOSettings"]["properties"]["num_epoch"]["minimum"] == 1
    assert definitions["PPOSettings"]["properties"]["learning_rate"]["exclusiveMinimum"] == 0
