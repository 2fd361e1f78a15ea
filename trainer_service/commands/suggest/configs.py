"""The commands ``configs`` and ``suggest``: ready configurations, listed and copied, and one for an environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainer_service.commands.common.output import say, say_result
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.config import BundledConfig, bundled_configs
from trainer_service.errors import UserError, suggested_command
from unity_bridge.names import nearest_choice


def list_or_copy(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style configs [NAME …]``. Returns the exit code.

    Raises:
        UserError: a name that there is not, a folder without one, or a file that is there already.
    """
    if parsed.names:
        copied = _copy(parsed.names, parsed.to or Path(), overwrite=parsed.force)
        rows = [
            {"name": config.name, "env": config.env, "file": str(target)} for config, target in copied.items()
        ]
        say_result(parsed, {"copied": rows}, _copied_lines(copied))
    elif parsed.to is not None or parsed.force:
        raise UserError(
            "expected the names of configurations to copy, got none (without names they are listed)"
        )
    else:
        rows = [
            {"name": config.name, "env": config.env, "description": config.description}
            for config in bundled_configs().values()
        ]
        say_result(parsed, {"configs": rows}, _list_lines(rows))
    return 0


def _list_lines(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yields a table of all configurations."""
    widths = {key: max((len(row[key]) for row in rows), default=0) for key in ("name", "env")}
    for row in rows:
        name, env = (row[key].ljust(width) for key, width in widths.items())
        yield f"{name}  {env}  {row['description']}".rstrip()
    yield "\nTrain with one: mlagents-style learn NAME --env=ENV --run-id=ID (ENV is its second column)"
    yield "To change one:  mlagents-style configs NAME [--to DIR]          (copies it)"


def _copied_lines(copied: Mapping[BundledConfig, Path]) -> Iterator[str]:
    """Yields the copies, each with the command that trains with it."""
    for config, target in copied.items():
        yield f"Copied {config.name} to {target}"
        command = suggested_command("learn", str(target), f"--run-id={config.name}", f"--env={config.env}")
        yield f"  {command}"


def _copy(names: Sequence[str], folder: Path, *, overwrite: bool) -> dict[BundledConfig, Path]:
    """Copies configurations into a folder. Returns the copies."""
    targets = {_named(name): folder / f"{_named(name).name}.yaml" for name in names}
    taken = [str(path) for path in targets.values() if path.exists()]
    if taken and not overwrite:
        raise UserError(f"{', '.join(taken)} exists already; --force overwrites, --to=DIR copies elsewhere")
    for config, target in targets.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            target.write_text(config.text_for(target), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{target}: cannot be written: {error.strerror or error}") from None
    return targets


def _named(name: str) -> BundledConfig:
    """The configuration of that name; its file's ending may follow."""
    known = bundled_configs()
    stem = name.removesuffix(".yaml")
    if stem in known:
        return known[stem]
    near = nearest_choice(stem, known)
    hint = f"did you mean '{near}'?" if near else "mlagents-style configs lists them"
    raise UserError(f"'{name}' is no bundled configuration; {hint}")


def print_suggestion(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style suggest``. Returns the exit code.

    Raises:
        UserError: the environment has no agents.
        LaunchError: there is no such environment.
        BridgeError: the simulator failed.
    """
    from trainer_service.commands.suggest.start import look_at
    from trainer_service.config import load_run_options
    from trainer_service.running.collection.attach_port import AttachPort
    from trainer_service.running.metrics.console import Console

    given = vars(parsed)
    options = load_run_options(None, nested(given, SETTINGS)).options
    # Everything on the way goes to standard error: standard output is for the result.
    with Console(tty=False, stream=sys.stderr):
        port = {name: given[name] for name in ("host", "port") if name in given}
        suggestion = look_at(options, None, AttachPort(**port))
    say(suggestion.to_yaml().rstrip("\n"))
    return 0
