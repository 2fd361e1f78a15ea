"""A command is one typed function: its flags, their checks and its output follow from the signature.

A parameter is annotated once, ``episodes: Annotated[int, Flag("of agents", "N", at_least=1)] = 100``. Parameters before
``*`` are positional arguments, the others flags; those without a ``Flag`` are for programs only. ``read_command`` makes
plain entries of them, which tools/write_command_line_docs.py writes to ``commands/table.py``, so that ``--help`` loads
no command. A command returns None, an exit code, or a result with ``lines()`` and ``to_json()``, such
as ``CommandResult``, for which it gets the flag ``--json``.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from trainer_service.commands.common.output import say, say_json
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.errors import UserError


@dataclass(frozen=True, slots=True)
class Flag:
    """A parameter on the command line, as far as its type and its default do not say it.

    A second one in an annotation is a flag that stands for its ``const``.
    """

    help: str = ""
    metavar: str = ""
    names: str = ""
    """Its spellings; empty for the parameter's name."""
    at_least: int | None = None
    type: Callable[[str], Any] | None = None
    """Reads the value; None where the parameter's type does."""
    nargs: str | None = None
    const: Any = None
    either: str = ""
    """The name of a set of arguments of which one may be given; of which one must be given with ``!`` at its end."""


class InGroup(str):
    """The title in the help of the group that a parameter belongs to."""

    __slots__ = ()


class Settings:
    """The annotation of ``**settings``: the settings of the configuration whose flags a command takes."""

    def __init__(self, *names: str) -> None:
        self.names = names


class FlagsOf:
    """The annotation of ``**`` for the flags of another function, without the command's own flags."""

    def __init__(self, function: Callable[..., Any], but: Sequence[str] = ()) -> None:
        self.function, self.but = function, but


class ParserArgument(NamedTuple):
    """An entry of the table: what ``add_argument`` gets, and where."""

    names: tuple[str, ...]
    options: Mapping[str, Any]
    group: str = ""
    either: str = ""


class CommandEntry(NamedTuple):
    """A command as the table has it."""

    description: str
    arguments: tuple[ParserArgument | str, ...]
    """Its arguments; a text is the name of a setting."""


JSON = ParserArgument(("--json",), {"action": "store_true", "help": "print one JSON object and nothing else"})


def read_command(function: Callable[..., Any]) -> CommandEntry:
    """The entries of a function."""
    arguments = [entry for each in _parameters(function) for entry in _entries(*each)]
    if get_type_hints(function).get("return") not in (int, NoneType):
        arguments.append(JSON)
    description, _, _ = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    return CommandEntry(" ".join(description.split()), tuple(arguments))


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[ParserArgument | str]) -> None:
    """Adds entries to the parser of a command."""
    homes: dict[str, Any] = {"": parser}
    for each in arguments:
        if isinstance(each, str):
            add_settings(parser, each)
            continue
        if each.either and each.either not in homes:
            homes[each.either] = parser.add_mutually_exclusive_group(required=each.either.endswith("!"))
        if each.group not in homes:
            homes[each.group] = parser.add_argument_group(each.group)
        homes[each.either or each.group].add_argument(*each.names, **each.options)


_KINDS: Mapping[str, Mapping[str, Any]] = {
    "int": {"type": int},
    "float": {"type": float},
    "str": {},
    "list": {"action": "append"},
    "bool": {"action": "store_true"},
}
_LIKE_NO_OTHER: Mapping[str, Mapping[str, Any]] = {
    "resume": {"nargs": "?", "const": True},
    "isolate": {"action": argparse.BooleanOptionalAction},
    "env_args": {"nargs": argparse.REMAINDER},
}


def add_settings(group: Any, *names: str) -> None:
    """Adds the flags of settings, as their models describe them. Absent ones are absent in the parsed arguments."""
    for name in names:
        setting = SETTINGS[name]
        shape = dict(_LIKE_NO_OTHER.get(name) or _KINDS[setting.kind])
        if setting.metavar:
            shape["metavar"] = setting.metavar
        help_text = setting.help.replace("%", "%%")
        group.add_argument(setting.flag, dest=name, default=argparse.SUPPRESS, help=help_text, **shape)


def call(function: Callable[..., Any], parsed: argparse.Namespace) -> int:
    """Runs a command with the parsed arguments, and prints its result. Returns the exit code.

    Raises UserError for a number below its bound.
    """
    given, values = vars(parsed), dict[str, Any]()
    for parameter, metadata in _parameters(function):
        if isinstance(metadata[0], Settings):
            values |= {name: given[name] for name in metadata[0].names if name in given}
            continue
        value = values[parameter.name] = given[parameter.name]
        require_at_least(metadata[0].at_least, **{_spellings(parameter, metadata[0])[-1]: value})
    is_json = given.get("json", False)
    values |= {"json": is_json} if "json" in inspect.signature(function).parameters else {}
    with redirect_stdout(sys.stderr) if is_json else nullcontext():  # a log, say, is no result
        result = function(**values)
        report = result.to_json() if is_json else None
    if result is None or isinstance(result, int):
        return result or 0
    if is_json:
        say_json(report)
    else:
        for line in result.lines():
            say(line)
    return int(getattr(result, "exit_code", 0))


def require_at_least(least: int | None, **numbers: float | None) -> None:
    """Raises UserError for a number below its bound. Where either of them is None, nothing is required."""
    for name, number in numbers.items():
        if least is not None and number is not None and number < least:
            raise UserError(f"{name}: expected at least {least}, got {number}")


def _parameters(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, list[Any]]]:
    """The parameters that are on the command line, with resolved annotations, and their flags or settings."""
    hints, own = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
    for parameter in own.values():
        parts = get_args(hints[parameter.name]) if get_origin(hints[parameter.name]) is Annotated else [None]
        for each in parts[1:]:
            if isinstance(each, FlagsOf):
                others = _parameters(each.function)
                yield from ((other, found) for other, found in others if other.name not in (*own, *each.but))
        if metadata := [each for each in parts[1:] if isinstance(each, Flag | Settings | InGroup)]:
            yield parameter.replace(annotation=parts[0]), metadata


def _entries(parameter: inspect.Parameter, metadata: Sequence[Any]) -> Iterator[ParserArgument | str]:
    if isinstance(metadata[0], Settings):
        yield from metadata[0].names
        return
    first, *others = (each for each in metadata if isinstance(each, Flag))
    group = next((each for each in metadata if isinstance(each, InGroup)), "")
    names, options = _spellings(parameter, first), _options(parameter, first)
    if names[0].startswith("-"):
        options["dest"] = parameter.name
    yield ParserArgument(names, options, group, first.either)
    for each in others:
        stands_for = {"action": "store_const", "const": each.const, "help": each.help}
        yield ParserArgument(
            tuple(each.names.split()), {**stands_for, "dest": parameter.name}, group, each.either
        )


def _spellings(parameter: inspect.Parameter, flag: Flag) -> tuple[str, ...]:
    if flag.names:
        return tuple(flag.names.split())
    is_flag = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return (f"--{parameter.name.replace('_', '-')}" if is_flag else parameter.name,)


def _options(parameter: inspect.Parameter, flag: Flag) -> dict[str, Any]:
    """The arguments of ``add_argument`` for a parameter with its bare annotation."""
    default, is_required = parameter.default, parameter.default is inspect.Parameter.empty
    is_flag = _spellings(parameter, flag)[0].startswith("-")
    options: dict[str, Any] = {
        "help": flag.help.replace("%", "%%") if flag.help != argparse.SUPPRESS else flag.help
    }
    [kind] = [each for each in _alternatives(parameter.annotation) if each is not NoneType]
    if kind is bool:
        return {**options, "action": "store_false" if default is True else "store_true"}
    if flag.metavar:
        options["metavar"] = flag.metavar
    if get_origin(kind) is Literal:
        options["choices"] = get_args(kind)
    if get_origin(kind) is Sequence:
        (kind,) = get_args(kind)
        if flag.nargs is None:
            options |= {"action": "append"} if is_flag else {"nargs": "+" if is_required else "*"}
    elif not (is_flag or is_required):
        options["nargs"] = "?"
    read = flag.type or (
        kind if kind in (int, float) or (inspect.isclass(kind) and kind is not str) else None
    )
    options |= {"type": read} if read else {}
    options |= {"nargs": flag.nargs, "const": flag.const} if flag.nargs else {}
    if is_flag and is_required:
        options["required"] = True
    elif options.get("action") == "append":
        options["default"] = []
    elif default not in (None, parameter.empty, ()):
        options["default"] = default
    return options


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
