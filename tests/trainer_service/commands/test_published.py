"""The command line and the names of the package as users have them, held against ``published.json``.

Change that file only together with something that users are to notice: a new flag, another default.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import trainer_service
from trainer_service.commands.parser import build_parser

PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
UNSAID = "the function's own"
"""The default of a flag that is absent in the parsed arguments where it is not given."""


def parsers() -> dict[str, argparse.ArgumentParser]:
    (action,) = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)


def described(action: argparse.Action) -> dict[str, Any]:
    """What a user can notice of an argument, but for the text of its help."""
    kind = type(action).__name__.removeprefix("_").removesuffix("Action")
    if kind in ("StoreTrue", "StoreFalse"):  # which of them is nobody's business
        return {"kind": "Switch", **({"hidden": True} if action.help == argparse.SUPPRESS else {})}
    default = action.default
    absent = default == argparse.SUPPRESS or (default is None and kind != "StoreConst")
    facts = {
        "kind": kind,
        "nargs": action.nargs,
        "type": getattr(action.type, "__name__", None),
        "choices": None if action.choices is None else list(action.choices),
        "default": UNSAID
        if absent
        else repr(default)
        if isinstance(default, int | float | list)
        else str(default),
        "const": action.const,
        "required": action.required,
        "metavar": action.metavar,
        "hidden": action.help == argparse.SUPPRESS,
    }
    return {name: fact for name, fact in facts.items() if fact is not None and fact is not False}


def outside(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The arguments of a command: positional ones in their order, flags by their spellings."""
    positionals = [described(action) for action in parser._actions if not action.option_strings]
    flags = {
        " ".join(action.option_strings): described(action)
        for action in parser._actions
        if action.option_strings
    }
    groups = [
        {"required": group.required, "of": sorted(map(_spelled, group._group_actions))}
        for group in parser._mutually_exclusive_groups
    ]
    return {"positionals": positionals, "flags": dict(sorted(flags.items())), "exclusive": groups}


def _spelled(action: argparse.Action) -> str:
    return " ".join(action.option_strings) or str(action.metavar)


def test_the_commands_are_the_published_ones() -> None:
    assert set(parsers()) == set(PUBLISHED["commands"])


@pytest.mark.parametrize("command", PUBLISHED["commands"])
def test_every_argument_is_as_published(command: str) -> None:
    now, before = outside(parsers()[command]), PUBLISHED["commands"][command]
    assert now["flags"].keys() == before["flags"].keys()
    assert now["exclusive"] == before["exclusive"]
    pairs = [*zip(now["positionals"], before["positionals"], strict=True)]
    pairs += [(now["flags"][spelling], each) for spelling, each in before["flags"].items()]
    for argument, published in pairs:
        may_be_said = {"default": argument.get("default")} if published.get("default") == UNSAID else {}
        assert argument == {**published, **may_be_said}


def test_the_package_offers_the_published_names() -> None:
    assert sorted(trainer_service.__all__) == PUBLISHED["names"]
