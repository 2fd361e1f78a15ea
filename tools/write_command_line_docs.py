"""Writes what follows from the functions of the commands: the table of their flags, and docs/command-line.md.

python tools/write_command_line_docs.py            # writes both
python tools/write_command_line_docs.py --check    # writes nothing; exit status 1 if one is stale
"""

from __future__ import annotations

import argparse
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer_service.commands.common.command import CommandEntry, read_command
from trainer_service.commands.parser import BY_HAND, COMMANDS, build_parser
from unity_bridge.simulators import command as simulator

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = Path("docs/command-line.md")
TABLE = Path("trainer_service/commands/table.py")
TABLE_HEAD = """# ruff: noqa: E501
\"\"\"The flags of the commands, as data: ``--help`` and a mistyped flag load no command.

Written by tools/write_command_line_docs.py from the functions of the commands.
\"\"\"

from collections.abc import Mapping
from pathlib import Path

from trainer_service.commands.common.command import CommandEntry, ParserArgument
from unity_bridge.transport.ports import port_number

# fmt: off
TABLE: Mapping[str, CommandEntry] = {
"""
HEAD = """# Command line

<!-- Written by tools/write_command_line_docs.py; run it after a change of a command or a flag. -->

This page lists every command of `mlagents-style` with its arguments and flags. `--help` after a command prints the
same text. [Runs](running.md) shows the commands in use. [Configuration](configuration.md) explains the settings behind
the flags of `learn`.
"""
_PLAIN = {"positional arguments", "options"}
"""Names of argparse's own groups, which say nothing."""


def read_commands() -> dict[str, CommandEntry]:
    """The commands, as their functions describe them."""
    places = {name: f"trainer_service.commands.{place}" for name, (place, _) in COMMANDS.items()}
    return {
        name: read_command(pkgutil.resolve_name(place))
        for name, place in places.items()
        if name not in BY_HAND
    }


def table(commands: Mapping[str, CommandEntry]) -> str:
    """The text of the table."""
    lines = [TABLE_HEAD.removesuffix("\n")]
    for name, command in commands.items():
        lines.append(f"    {name!r}: CommandEntry({command.description!r}, (")
        lines += [f"        {_literal(each)}," for each in command.arguments]
        lines.append("    )),")
    return "\n".join([*lines, "}", ""])


def _literal(value: Any) -> str:
    """The Python text of a value."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return f"{type(value).__name__}({', '.join(map(_literal, value))})"
    if isinstance(value, Path):
        return f"Path({str(value)!r})"
    return value.__name__ if callable(value) else repr(value)


def page(table: Mapping[str, CommandEntry]) -> str:
    """The text of the page."""
    commands = _commands(build_parser(table))
    rows = [f"| [`{name}`](#{name}) | {_words(purpose)} |" for name, purpose, _ in commands]
    parts = [HEAD, "\n".join(["| command | purpose |", "| --- | --- |", *rows, ""])]
    for name, purpose, parser in commands:
        parts.append(f"## {name}\n\n{_words(parser.description or f'{_sentence(purpose)}.')}\n")
        parts += _tables(simulator.build_parser() if name == "simulate" else parser)
    return "\n".join(parts)


def _commands(parser: argparse.ArgumentParser) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """Name, purpose and parser of each command, in the order of ``--help``."""
    [commands] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    purposes = {action.dest: action.help or "" for action in commands._choices_actions}
    return [(name, purposes[name], commands.choices[name]) for name in purposes]


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A table of the arguments without a group, then one for each group."""
    groups: dict[str, list[argparse.Action]] = {}
    for group in parser._action_groups:
        title = "" if group.title in _PLAIN else f"{_sentence(_words(group.title or ''))}:\n\n"
        listed = [action for action in group._group_actions if _is_listed(action)]
        groups.setdefault(title, []).extend(listed)
    for title, actions in groups.items():
        rows = [f"| {_name(action)} | {_words(_help(parser, action))} |" for action in actions]
        if rows:
            yield title + "\n".join(["| argument | meaning |", "| --- | --- |", *rows, ""])


def _is_listed(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)


def _name(action: argparse.Action) -> str:
    """The flag with the name of its value, or the name of the positional argument."""
    metavar = action.metavar or (f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper())
    value = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    value = {"?": f"[{value}]", "*": f"[{value} …]", "+": f"{value} …"}.get(str(action.nargs), value)
    if not action.option_strings:
        return _code(value)
    takes_value = action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)
    return ", ".join(_code(f"{flag} {value}" if takes_value else flag) for flag in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _words(text: str) -> str:
    """Help text as Markdown."""
    return re.sub(r"([*|<\[])", r"\\\1", " ".join(text.split()))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def main(argv: Sequence[str] | None = None, repository: Path = REPOSITORY) -> int:
    """Writes the files, or compares them. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Writes the flags of the commands, and their reference.")
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 on a difference")
    commands = read_commands()
    texts = {TABLE: table(commands), PAGE: page(commands)}
    stale = {
        name: text
        for name, text in texts.items()
        if not (repository / name).is_file() or (repository / name).read_text(encoding="utf-8") != text
    }
    if stale and parser.parse_args(argv).check:
        print(f"{', '.join(map(str, stale))}: stale; run: python tools/write_command_line_docs.py")
        return 1
    for name, text in stale.items():
        (repository / name).write_text(text, encoding="utf-8", newline="\n")
        print(f"{name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
