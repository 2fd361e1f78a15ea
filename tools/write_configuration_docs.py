"""Writes what models say of themselves: docs/configuration.md's tables, the schema and the arguments of the
configuration, and the schema of a bundle's policy.json.

    python tools/write_configuration_docs.py            # writes all four
    python tools/write_configuration_docs.py --check    # writes nothing; exit status 1 where they are stale

In the page only what stands between the two markers is written; the rest is written by hand. The arguments are the
flags of ``mlagents-style learn`` and the keyword arguments of ``train``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from trainer_service.config import HYPERPARAMETERS, REWARD_SIGNALS, RunOptions, json_schema
from trainer_service.config.environment_parameters import SAMPLERS
from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters, RandomSettings
from trainer_service.config.reading.legacy import SAMPLERS_ALSO_CALLED
from trainer_service.config.section import Argument, Section, section_in
from trainer_service.running.interop.bundle import description_schema

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = Path("docs/configuration.md")
SCHEMA = Path("configs/schema.json")
POLICY_SCHEMA = Path("docs/policy.schema.json")
ARGUMENTS = Path("trainer_service/commands/common/run_arguments.py")
BEGIN = "<!-- Written by tools/write_configuration_docs.py: everything down to the end marker. -->"
END = "<!-- The end of the generated tables. -->"
ABSENT = "–"
VALUE_METHODS = (OffPolicyHyperparameters, RandomSettings)
"""Their hyperparameters have separate tables: one for all would be too wide to read."""

Definitions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Chapter:
    """One section of the file."""

    heading: str
    models: Mapping[str, str]
    """Names of definitions in the schema, by their distinguishing keys; a single one has no name."""


def chapters() -> list[Chapter]:
    """The file from top to bottom."""
    return [
        Chapter("The top level", {"": "RunOptions"}),
        Chapter("`behaviors.NAME`, `default_settings`", {"": "TrainerSettings"}),
        Chapter("`hyperparameters`", _names(HYPERPARAMETERS, but=VALUE_METHODS)),
        Chapter("`hyperparameters` of value methods", _names(HYPERPARAMETERS, only=VALUE_METHODS)),
        Chapter("`hyperparameters.replay`", {"": "ReplaySettings"}),
        Chapter("`network_settings`", {"": "NetworkSettings"}),
        Chapter("`network_settings.memory`", {"": "MemorySettings"}),
        Chapter("`reward_signals`", _names(REWARD_SIGNALS)),
        Chapter("`behavioral_cloning`", {"": "BehavioralCloningSettings"}),
        Chapter("`self_play`", {"": "SelfPlaySettings"}),
        Chapter("`env_settings`", {"": "EnvironmentSettings"}),
        Chapter("`engine_settings`", {"": "EngineSettings"}),
        Chapter("`environment_parameters.NAME`: a sampler", {"": "Sampler"}),
        Chapter("`sampler_parameters`", _names(SAMPLERS)),
        Chapter("`environment_parameters.NAME`: a curriculum", {"": "CurriculumSettings"}),
        Chapter("`curriculum[…]`: a lesson", {"": "Lesson"}),
        Chapter("`completion_criteria`", {"": "CompletionCriteria"}),
        Chapter("`evaluation`", {"": "EvaluationSettings"}),
        Chapter("`stop`", {"": "StopSettings"}),
        Chapter("`checkpoint_settings`", {"": "CheckpointSettings"}),
        Chapter("`torch_settings`", {"": "TorchSettings"}),
        Chapter("`distributed`", {"": "DistributedSettings"}),
    ]


def _names(
    models: Mapping[str, type], *, only: tuple[type, ...] = (object,), but: tuple[type, ...] = ()
) -> dict[str, str]:
    return {
        kind: model.__name__
        for kind, model in models.items()
        if issubclass(model, only) and not issubclass(model, but)
    }


def tables() -> str:
    """The generated part of the page."""
    definitions: Definitions = json_schema()["$defs"]
    return "\n\n".join(_chapter(chapter, definitions) for chapter in chapters())


def _chapter(chapter: Chapter, definitions: Definitions) -> str:
    models = {kind: definitions[name] for kind, name in chapter.models.items()}
    parts = [f"### {chapter.heading}"]
    parts.append("\n".join(_introduction(kind, name, definitions) for kind, name in chapter.models.items()))
    rows = _rows(models)
    if rows:
        kinds = list(models)
        header = ["key", "value", *(["default"] if kinds == [""] else kinds), "meaning"]
        parts.append("\n".join(["| " + " | ".join(header) + " |", "|" + " --- |" * len(header), *rows]))
    return "\n\n".join(parts)


def _introduction(kind: str, name: str, definitions: Definitions) -> str:
    text = definitions[name]["description"]
    return f"- `{kind}`: {text}" if kind else text


def _rows(models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for model in models.values() for key in model["properties"])
    return [row for key in keys if (row := _row(key, models)) is not None]


def _row(key: str, models: Mapping[str, Mapping[str, Any]]) -> str | None:
    """One key, with its default in each model that it matters to; None for a key that is only accepted for its age."""
    found = [model["properties"][key] for model in models.values() if key in model["properties"]]
    if any("deprecationMessage" in schema for schema in found):
        return None
    described = next((schema for schema in found if "description" in schema), {})
    defaults = [
        ABSENT if kind in HYPERPARAMETERS and key in HYPERPARAMETERS[kind].unused else _default(key, model)
        for kind, model in models.items()
    ]
    cells = [f"`{key}`", _value(found[0]), *defaults, described.get("description", "")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: str, model: Mapping[str, Any]) -> str:
    schema = model["properties"].get(key)
    if schema is None:
        return ABSENT
    if key in model.get("required", ()):
        return "required"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _value(schema: Mapping[str, Any]) -> str:
    """The allowed values, in words."""
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"] if choice not in SAMPLERS_ALSO_CALLED)
    if "anyOf" in schema:
        return " or ".join(_value(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return _name(schema["$ref"])
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    text = next(words for kind, words in WORDS.items() if kind in kinds)
    empty = " or null" if "null" in kinds and len(kinds) > 1 and "object" not in kinds else ""
    return text + _bounds(schema) + empty


WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
    "null": "null",
}


def _name(reference: str) -> str:
    return {"Sampler": "sampler", "CurriculumSettings": "curriculum"}.get(
        reference.rpartition("/")[2], "mapping"
    )


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high, above = schema.get("minimum"), schema.get("maximum"), schema.get("exclusiveMinimum")
    if above is not None:
        return f" > {above}"
    if low is not None and high is not None and high < 2**31 - 1:
        return f", {low} to {high}"
    return "" if low is None else f" ≥ {low}"


ARGUMENTS_HEAD = '''# ruff: noqa: E501
"""The keys of the configuration that have a flag, and an argument of ``train``.

Written by tools/write_configuration_docs.py from the models in ``trainer_service.config``, which mark them.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict, get_type_hints

from trainer_service.commands.common.settings import Setting


# fmt: off
class SimulatorArguments(TypedDict, total=False):
    """Settings for which ``train`` has parameters of its own, which take more."""

'''
SETTINGS_HEAD = '''

class RunArguments(TypedDict, total=False):
    """Settings that ``train`` takes besides a configuration; None leaves a setting as it is. Their meaning is in
    docs/configuration.md, under the same names."""

'''
ARGUMENTS_TAIL = '''

# fmt: on
SETTINGS: Mapping[str, Setting] = {
    name: hint.__metadata__[0]
    for arguments in (SimulatorArguments, RunArguments)
    for name, hint in get_type_hints(arguments, include_extras=True).items()
}
"""Flags and arguments by the name of their key."""
'''
OWN_PARAMETERS = frozenset({"env_path", "env_args"})
"""Keys for which ``train`` has parameters of its own, which take more."""
PYTHON_TYPES = {"int": "int", "float": "float", "str": "str", "bool": "bool", "list": "Sequence[str]"}


def arguments() -> str:
    """The module of flags and arguments."""
    own, others = [], []
    for path, (mark, field) in _arguments(RunOptions):
        flag = mark.flag or "--" + path[-1].replace("_", "-")
        kind = _kind(field.annotation)
        said = json.dumps([".".join(path), flag, kind, mark.metavar], ensure_ascii=False)[1:-1]
        words = json.dumps(_help(field), ensure_ascii=False)
        type_ = f"{mark.python or PYTHON_TYPES[kind]} | None"
        entry = f"    {path[-1]}: Annotated[{type_}, Setting({said},\n        {words})]\n"
        (own if path[-1] in OWN_PARAMETERS else others).append(entry)
    return "".join([ARGUMENTS_HEAD, *own, SETTINGS_HEAD, *others, ARGUMENTS_TAIL])


def _arguments(
    section: type[Section], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[Argument, FieldInfo]]]:
    """Yields the keys of a section and those below it that are marked, by their path."""
    for key, field in section.model_fields.items():
        if (inner := section_in(field.annotation)) is not None:
            yield from _arguments(inner, (*above, key))
        for mark in field.metadata:
            if isinstance(mark, Argument):
                yield (*above, key), (mark, field)


def _kind(annotation: Any) -> str:
    """The type of a flag's value."""
    if annotation in (int, float, str, bool):
        return str(annotation.__name__)
    if get_origin(annotation) is tuple:
        return "list"
    if get_origin(annotation) is Literal:
        return "str"
    kinds = [each for each in get_args(annotation) if each is not type(None)]
    return _kind(kinds[0])


def _help(field: FieldInfo) -> str:
    """The description without markup, and without what is said to users of ML-Agents; with the default."""
    text = " ".join((field.description or "").replace("``", "").replace("−", "-").split())
    sentences = [each for each in re.split(r"(?<=[.;]) (?=[A-Z])", text) if "ML-Agents" not in each]
    words = " ".join(sentences).rstrip(".")
    words = words[:1].lower() + words[1:]
    if field.default in (None, False, (), "auto"):
        return words
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{words} (default {default})"


def page_with(text: str, generated: str) -> str:
    """``text`` with ``generated`` between its markers. Raises ValueError where they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks one of the two markers: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


def expected(repository: Path) -> dict[Path, str]:
    """The expected content of each file."""
    page = (repository / PAGE).read_text(encoding="utf-8")
    return {
        PAGE: page_with(page, tables()),
        SCHEMA: json.dumps(json_schema(), indent=2) + "\n",
        POLICY_SCHEMA: json.dumps(description_schema(), indent=2) + "\n",
        ARGUMENTS: arguments(),
    }


def is_stale(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_text(encoding="utf-8") != text


def main(argv: Sequence[str] | None = None, repository: Path = REPOSITORY) -> int:
    parser = argparse.ArgumentParser(description="Writes what the configuration's models say.")
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 on a difference")
    arguments = parser.parse_args(argv)
    stale = {path: text for path, text in expected(repository).items() if is_stale(repository / path, text)}
    for path, text in stale.items():
        if arguments.check:
            print(f"{path} is stale; run: python tools/write_configuration_docs.py")
        else:
            (repository / path).parent.mkdir(parents=True, exist_ok=True)
            (repository / path).write_text(text, encoding="utf-8", newline="\n")
            print(f"{path} written")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
