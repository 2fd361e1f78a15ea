"""The base of all sections of the configuration: frozen and strict, with plain messages about mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from trainer_service.config.values import expected, problem, shown
from unity_bridge.names import did_you_mean, nearest_choice
from unity_bridge.plugins import PluginGroup

Location = tuple[str | int, ...]
"""Keys and list positions from the top of a configuration down to a value."""

_Built = TypeVar("_Built")


class Remark(NamedTuple):
    """A mistake in a setting, or a setting that is accepted but has no effect or another one."""

    location: Location
    """Path of the key below the section that says so."""

    text: str
    """The expected value, or the effect of the key, if any, and the reason."""

    def below(self, *above: str) -> Remark:
        """Returns the remark for a section that has this section at the keys ``above``."""
        return Remark((*above, *self.location), self.text)


OF_STABLE_BASELINES = {
    "total_timesteps": "max_steps",
    "n_steps": "time_horizon, with hyperparameters.buffer_size = n_envs x n_steps,",
    "n_envs": "env_args: ['--agents', 'N']",
    "n_epochs": "hyperparameters.num_epoch",
    "gae_lambda": "hyperparameters.lambd",
    "clip_range": "hyperparameters.epsilon",
    "ent_coef": "hyperparameters.beta (init_entcoef of sac)",
    "learning_starts": "hyperparameters.buffer_init_steps",
    "train_freq": "hyperparameters.steps_per_update",
    "policy_kwargs": "network_settings",
    "net_arch": "network_settings.hidden_units and num_layers",
    "activation_fn": "network_settings.activation",
}
"""Arguments of Stable-Baselines3, and the key or argument here for each."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A mark of keys that ``learn`` has a flag for, and ``train`` an argument of the same name."""

    metavar: str = ""
    """Placeholder of the value in the help; empty for flags that take none."""

    flag: str = ""
    """The flag, where it is not the key with dashes."""

    python: str = ""
    """The type of the argument of ``train``, where it takes more than the key."""


class Section(BaseModel):
    """A mapping with known keys. An unknown key is a mistake, reported with all others."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, defer_build=True)

    def differs(self, key: str) -> bool:
        """Whether a key has another value than its default."""
        field = type(self).model_fields[key]
        return bool(
            getattr(self, key) != field.get_default(call_default_factory=True, validated_data=dict(self))
        )

    @classmethod
    def unknown_key(cls, key: str, siblings: Mapping[str, type[Section]]) -> str:
        """The message about ``key``, which this section does not have.

        siblings: the sections that could stand in its stead, by the name that chooses them; empty where none could.
        """
        if ours := OF_STABLE_BASELINES.get(key):
            return f"unknown key (that of Stable-Baselines3 is {ours} here)"
        if nearest_choice(key, cls.model_fields):
            return unknown_key_message(key, cls.model_fields)
        if home := _home_of(key, cls):
            return f"unknown key (it belongs under '{home}')"
        return unknown_key_message(key, cls.model_fields)

    @model_validator(mode="wrap")
    @classmethod
    def _report_unknown_keys(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        unknown = [key for key in data if key not in cls.model_fields] if isinstance(data, dict) else []
        if not unknown:
            return handler(data)
        problems = [
            error_at(problem(cls.unknown_key(str(key), info.context or {})), (key,), data[key])
            for key in unknown
        ]
        try:
            handler({key: value for key, value in data.items() if key not in unknown})
        except ValidationError as error:
            problems.extend(nested_errors(error))
        raise ValidationError.from_exception_data(cls.__name__, problems)


def _home_of(key: str, section: type[Section]) -> str | None:
    """Returns the dotted path of the shallowest section below ``section`` that has ``key``."""
    inner = {name: section_in(field.annotation) for name, field in section.model_fields.items()}
    homes = [name for name, model in inner.items() if model is not None and key in model.model_fields]
    homes += [
        f"{name}.{deeper}"
        for name, model in inner.items()
        if model is not None and (deeper := _home_of(key, model)) is not None
    ]
    return homes[0] if homes else None


def section_in(annotation: Any) -> type[Section] | None:
    """Returns the section that a field holds, even if optional; None where it holds something else."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def unknown_key_message(key: str, choices: Iterable[str]) -> str:
    """Returns the message about a key that is none of ``choices``."""
    choices = list(dict.fromkeys(choices))
    if hint := did_you_mean(key, choices):
        return f"unknown key{hint}"
    return f"unknown key; expected one of {', '.join(choices)}"


def require_choice(kind: str, word: Any, choices: Iterable[str], remark: str = "") -> str:
    """Returns ``word`` if it is one of ``choices``; raises a validation error with the nearest one otherwise.

    remark: what else to say about the choices then.
    """
    choices = list(dict.fromkeys(choices))
    if isinstance(word, str) and word in choices:
        return word
    hint = did_you_mean(word, choices)
    article = "an" if kind[0] in "aeiou" else "a"
    raise problem(f"expected {article} {kind}, one of {', '.join(choices)}, got {shown(word)}{hint}{remark}")


@dataclass(frozen=True)
class NameIn:
    """An annotation of names: the names in ``built_in``, and the names of plugins of the group.

    It reads the names of plugins from the metadata of their distributions and imports nothing.
    """

    group: PluginGroup
    built_in: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._require, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.built_in)}

    def _require(self, value: Any) -> str:
        if value in self.built_in:
            return str(value)
        return require_choice(self.group.kind, value, [*self.built_in, *self.group.offered()])


def build_each(entries: Any, build: Callable[[str, Any], _Built]) -> dict[str, _Built]:
    """Builds every entry of a mapping by ``build(key, value)``; raises the mistakes of all of them at once."""
    if not isinstance(entries, Mapping):
        raise expected("a mapping", entries)
    built: dict[str, _Built] = {}
    problems: list[InitErrorDetails] = []
    for key, value in entries.items():
        try:
            built[key] = build(key, value)
        except ValidationError as error:
            problems.extend(nested_errors(error, (key,)))
        except PydanticCustomError as error:
            problems.append(error_at(error, (key,), value))
    if problems:
        raise ValidationError.from_exception_data("mapping", problems)
    return built


def names_or_mapping(value: Any, what: str, name: str, default: Any) -> dict[Any, Any]:
    """Reads a list of names, or a mapping from names to more; each name once.

    Args:
        value: the list, whose names get the default, or the mapping.
        what: what is expected, in words.
        name: what a name is of, in words.
        default: for each name of a list.
    """
    if not isinstance(value, Mapping | list | tuple):
        raise expected(what, value)
    names = list(value)
    for each in names:
        if not isinstance(each, str):
            raise expected(name, each)
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise problem(f"'{twice}' stands there twice")
    return dict(value) if isinstance(value, Mapping) else dict.fromkeys(names, default)


def names_or_mapping_schema(least: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a list with a minimum number of names, or of a mapping from names to values."""
    names = {"type": "array", "items": {"type": "string"}, "minItems": least, "uniqueItems": True}
    mapping = {"type": "object", "additionalProperties": values, "minProperties": least}
    return {"anyOf": [names, mapping]}


def error_at(error: PydanticCustomError, location: Location, value: Any) -> InitErrorDetails:
    """Returns ``error`` at a location below the section that raises it."""
    return InitErrorDetails(type=error, loc=location, input=value)


def section_error(location: Location, text: str, value: Any = None) -> ValidationError:
    """Returns the error of a check across keys, at the key that should change."""
    return ValidationError.from_exception_data("section", [error_at(problem(text), location, value)])


def nested_errors(error: ValidationError, under: Location = ()) -> list[InitErrorDetails]:
    """Returns the mistakes inside ``error``, each in plain words, moved below ``under``."""
    return [
        error_at(problem(plain_message(details)), under + details["loc"], details["input"])
        for details in root_errors(error)
    ]


def root_errors(error: ValidationError) -> list[ErrorDetails]:
    """Returns the mistakes inside ``error``, without the ones that merely follow from another one."""
    return [
        details
        for details in error.errors(include_url=False)
        if details["type"] != "default_factory_not_called"
    ]


def plain_message(details: ErrorDetails) -> str:
    """Describes one mistake in the words of YAML."""
    kind, context, got = details["type"], details.get("ctx", {}), shown(details["input"])
    match kind:
        case "missing":
            return "required, but not given"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"expected a mapping, got {got}"
        case "tuple_type" | "list_type":
            return f"expected a list, got {got}"
        case "greater_than_equal":
            return f"expected at least {context['ge']:g}, got {got}"
        case "greater_than":
            return f"expected more than {context['gt']:g}, got {got}"
        case "less_than":
            return f"expected less than {context['lt']:g}, got {got}"
        case "less_than_equal":
            return f"expected at most {context['le']:g}, got {got}"
        case "literal_error":
            choices = context["expected"]
            hint = did_you_mean(details["input"], choices.split("'")[1::2])
            return f"expected {choices}, got {got}{hint}"
        case _:
            return details["msg"]
