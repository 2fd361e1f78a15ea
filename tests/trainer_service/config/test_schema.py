from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from trainer_service.config import HYPERPARAMETERS, REWARD_SIGNALS, json_schema, parse_run_options
from trainer_service.errors import ConfigError

HERE = Path(__file__).parent
CONFIGS = HERE.parents[2] / "configs"
VALID = [*sorted((HERE / "ml_agents_style").glob("*.yaml")), *sorted(CONFIGS.glob("*.yaml"))]


class EditorsLoader(yaml.SafeLoader):
    """YAML 1.2 as editors read it: 3e-4 is a number."""


EditorsLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"),
    list("-+.0123456789"),
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema as an editor gets it."""
    return json.loads(json.dumps(json_schema()))


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Draft7Validator:
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_no_red_line_in_a_valid_file(validator: Draft7Validator, path: Path) -> None:
    values = yaml.load(path.read_text(encoding="utf-8"), EditorsLoader)
    assert not [(list(error.absolute_path), error.message) for error in validator.iter_errors(values)]
    parse_run_options(values)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("bahaviors: {}", ""),
        ("behaviors: {A: {max_stepz: 5}}", "behaviors.A"),
        ("behaviors: {A: {max_steps: lots}}", "behaviors.A.max_steps"),
        ("behaviors: {A: {summary_freq: 0}}", "behaviors.A.summary_freq"),
        ("behaviors: {A: {trainer_type: pppo}}", "behaviors.A.trainer_type"),
        ("behaviors: {A: {trainer_type: sac, hyperparameters: {lambd: 0.9}}}", "behaviors.A.hyperparameters"),
        ("behaviors: {A: {network_settings: {vis_encode_type: vgg}}}", "behaviors.A.network_settings.vis_encode_type"),
        ("behaviors: {A: {reward_signals: {curiousity: {}}}}", "behaviors.A.reward_signals"),
        ("behaviors: {A: {reward_signals: {gail: {strength: 1}}}}", "behaviors.A.reward_signals.gail"),
        ("env_settings: {num_envs: 0}", "env_settings.num_envs"),
        ("environment_parameters: {mass: heavy}", "environment_parameters.mass"),
        ("environment_parameters: {mass: {curriculum: [{name: a}]}}", "environment_parameters.mass"),
    ],
)  # fmt: skip
def test_the_schema_refuses_what_a_run_would_refuse(validator: Draft7Validator, text: str, path: str) -> None:
    values = yaml.load(text, EditorsLoader)
    assert [".".join(error.absolute_path) for error in validator.iter_errors(values)] == [path]
    with pytest.raises(ConfigError):
        parse_run_options(values)


def test_hyperparameters_without_a_trainer_type_may_be_of_any(
    validator: Draft7Validator,
) -> None:
    text = "{default_settings: {trainer_type: sac}, behaviors: {A: {hyperparameters: {tau: 0.1}}}}"
    assert validator.is_valid(yaml.safe_load(text))
    assert not validator.is_valid(yaml.safe_load("behaviors: {A: {hyperparameters: {tua: 0.1}}}"))


def test_every_family_has_its_own_keys(schema: dict[str, Any]) -> None:
    definitions = schema["$defs"]
    for model in (*HYPERPARAMETERS.values(), *REWARD_SIGNALS.values()):
        assert set(model.model_fields) <= set(definitions[model.__name__]["properties"])
        assert definitions[model.__name__]["additionalProperties"] is False
