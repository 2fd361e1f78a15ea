"""The parser of every command, with a hint at the nearest flag for an unknown one."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from trainer_service._version import __version__
from trainer_service.commands.common.command import CommandEntry, add_arguments
from trainer_service.commands.learn.flags import add_flags as add_flags_of_learn
from trainer_service.commands.learn.flags import with_resume_joined
from trainer_service.commands.table import TABLE

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Train": {
        "learn": ("learn.command:learn", "train"),
        "suggest": ("suggest.command:print_suggestion", "print a configuration for an environment"),
        "check": ("configs.command:check", "validate configurations without running them"),
        "configs": ("configs.command:list_or_copy", "list ready configurations, or copy them"),
        "sweep": ("search.command:search_hyperparameters", "search hyperparameters"),
        "demo": ("watch.command:demo", "train a small scene and watch it learn"),
    },
    "Score and look": {
        "evaluate": ("play.command:evaluate", "play a frozen policy and report its returns"),
        "compare": ("compare.command:compare_runs", "compare runs over seeds"),
        "report": ("report.command:report_run", "write a page on a run that can be mailed"),
        "status": ("status.command:print_status", "what a run is doing, or how it ended"),
        "play": ("play.command:play", "play episodes of an environment without a trainer"),
        "watch": ("watch.command:watch", "watch a policy act on a local page, and play yourself"),
    },
    "Imitate": {
        "record-demo": ("demos.command:record_demo", "record demonstrations for imitation"),
        "demo-info": ("demos.command:demo_info", "what is inside recorded demonstrations"),
        "demo-convert": ("demos.command:demo_convert", "make a recording of a data set of Minari, or the reverse"),
        "clone": ("demos.command:clone_demo", "learn from demonstrations, without a simulator"),
    },
    "Simulators": {
        "simulate": ("simulate:simulate", "run an environment as a simulator, by hand"),
        "relay": ("relay:relay_simulators", "run simulators here for a trainer on another machine"),
    },
    "Share": {
        "serve": ("serve:serve", "let other programs get actions of trained policies, by gRPC"),
        "export": ("share.command:export_models", "write the ONNX models of a run again, from its checkpoints"),
        "import-checkpoint": ("share.command:import_checkpoint", "make a run from a results folder of ML-Agents"),
        "push": ("share.command:push", "share a run on the Hugging Face Hub"),
        "load": ("share.command:load", "make a run of a repository on the Hugging Face Hub"),
    },
    "Set up": {
        "doctor": ("doctor.command:examine", "what is broken in this installation or set-up"),
        "schema": ("configs.command:print_schema", "print the JSON Schema of the configuration, for editors"),
        "alias": ("train.alias:switch_alias", "let mlagents-learn be another name of learn, for old scripts"),
    },
}  # fmt: skip
"""The place and the purpose of each command. Its flags follow from its function there."""

COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}

_EXAMPLES = """Examples:
  mlagents-style learn 3dball --env=sim:3dball --run-id=balls
  mlagents-style evaluate balls
  mlagents-style learn --env=gym:CartPole-v1 --run-id=pole

mlagents-style COMMAND --help lists the flags of a command. mlagents-learn is learn here, mlagents-push-to-hf push,
mlagents-load-from-hf load."""

_INVALID = re.compile(r"invalid (?P<kind>int|float) value: (?P<value>.*)")
"""Argparse's message about a value that is no number."""

_ELSEWHERE = {
    "--mlagents-port": "--port",
    "train": "learn",
    "mlagents-learn": "learn",
    "mlagents-push-to-hf": "push",
    "mlagents-load-from-hf": "load",
    "eval": "evaluate",
}
"""Flags of simulators, and commands of other programs, that have another name here."""


def build_parser(table: Mapping[str, CommandEntry] = TABLE) -> argparse.ArgumentParser:
    """The parser of ``mlagents-style``. It sets ``command``, a name, and ``parser``, the command's own.

    table: the commands whose flags follow from a function.
    """
    parser = _Parser(
        prog="mlagents-style",
        description="Trains agents that live in a simulator, over the ML-Agents protocol.",
    )
    parser.add_argument("--version", action="version", version=f"trainer-service {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (_, purpose) in COMMANDS.items():
        description, add_flags = BY_HAND.get(name, ("", None))
        absent = argparse.SUPPRESS if name == "learn" else None
        command = commands.add_parser(
            name, help=purpose, description=description or (table[name].description if name in table else ""),
            argument_default=absent, add_help=name != "simulate",
        )  # fmt: skip
        command.set_defaults(command=name, parser=command)
        if add_flags:
            add_flags(command)
        elif name in table:
            add_arguments(command, table[name].arguments)
    return parser


def overview() -> Iterator[str]:
    """Yields what ``mlagents-style`` alone prints: its commands in groups, with examples."""
    yield "usage: mlagents-style COMMAND …"
    for title, group in GROUPS.items():
        yield f"\n{title}:"
        yield from (f"  {name:<18} {purpose}" for name, (_, purpose) in group.items())
    yield f"\n{_EXAMPLES}"


def _add_simulate(simulate: argparse.ArgumentParser) -> None:
    simulate.add_argument("rest", nargs=argparse.REMAINDER, metavar="ENV …")


BY_HAND: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "learn": (
        "Trains the behaviors of a simulator. Flags win over the configuration file.",
        add_flags_of_learn,
    ),
    "simulate": (
        "Attaches an environment to a running trainer: a bundled scene, an environment of Gymnasium, PettingZoo or "
        "another library, or a scene in a Python file.",
        _add_simulate,
    ),
}
"""Commands whose functions take the parsed arguments as they are: their descriptions and flags."""


def _expected(refusal: re.Match[str]) -> str:
    """argparse's refusal of a value in our words."""
    kind = {"int": "a whole number", "float": "a number"}[refusal["kind"]]
    value = refusal["value"]
    return f"expected {kind}, got {'nothing' if value == repr('') else value}"


class _Parser(argparse.ArgumentParser):
    """An argument parser that names the nearest flag or command."""

    def parse_known_args(  # type: ignore[override]  # the overloads differ in the namespace, which is handed on
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        arguments = list(sys.argv[1:] if args is None else args)
        if arguments[:1] == ["learn"]:
            arguments = with_resume_joined(arguments)
        return super().parse_known_args(arguments, namespace)

    def error(self, message: str) -> NoReturn:
        """Ends the process with one line on the usage and one on the mistake."""
        message = _INVALID.sub(_expected, message)
        known = [option for action in self._actions for option in action.option_strings]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                known += list(action.choices)
        asked = "" if message.startswith("ambiguous option") else message.partition(": expected ")[0]
        for word in re.sub("['=:]", " ", asked).split():  # an ambiguous one is told with the flags that fit
            near = difflib.get_close_matches(_ELSEWHERE.get(word, word), known, n=1, cutoff=0.75)
            if near and near[0] != word and word not in known:
                message += f" (did you mean '{near[0]}'?)"
                break
        self.exit(
            2, f"usage: {self.prog} …  ({self.prog} --help prints all)\n{self.prog}: error: {message}\n"
        )
