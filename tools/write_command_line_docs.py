"""Writes docs/command-line.md, the reference of the command line, from the parsers of the commands.

python tools/write_command_line_docs.py            # writes the page
python tools/write_command_line_docs.py --check    # writes nothing; exit status 1 if the page is stale
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer_service.commands.parser import build_parser
from unity_bridge.simulators import command as simulator

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = Path("docs/command-line.md")
HEAD = """# Command line

<!-- Written by tools/write_command_line_docs.py; run it after a change of a command or a flag. -->

This page lists every command of `mlagents-style` with its arguments and flags. `--help` after a command prints the
same text. [Runs](running.md) shows the commands in use. [Configuration](configuration.md) explains the settings behind
the flags of `learn`.
"""
_PLAIN = {"positional arguments", "options"}
"""Names of argparse's own groups, which say nothing."""


def page() -> str:
    """The text of the page."""
    commands = _commands(build_parser())
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
    """Writes the page, or compares it. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Writes the reference of the command line.")
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 on a difference")
    path, text = repository / PAGE, page()
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    if parser.parse_args(argv).check:
        print(f"{PAGE} is stale; run: python tools/write_command_line_docs.py")
        return 1
    path.write_text(text, encoding="utf-8", newline="\n")
    print(f"{PAGE} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
