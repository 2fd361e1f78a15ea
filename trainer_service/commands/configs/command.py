"""The commands ``check``, ``configs`` and ``schema``: configurations, validated, listed, copied and described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.flags import NoPlugins
from trainer_service.commands.common.output import CommandResult, note, say_json
from trainer_service.config import BundledConfig, FileCheck, bundled_configs, check_files, json_schema
from trainer_service.errors import UserError, suggested_command
from unity_bridge.names import nearest_choice


def check(
    files: Annotated[Sequence[Path], Flag("what to validate", "CONFIG.yaml")],
    *,
    no_plugins: NoPlugins = False,
) -> CommandResult:  # fmt: skip
    """Validates configurations without running them."""
    checks = check_files(files)
    ok = all(each.ok for each in checks)
    value = {"ok": ok, "files": [each.to_json() for each in checks]}
    return CommandResult(value, _check_lines(checks), 0 if ok else 2)


def _check_lines(checks: Sequence[FileCheck]) -> Iterator[FileCheck]:
    """Yields one line per file, so that they can be counted; details go to standard error."""
    for each in checks:
        yield each
        for detail in each.details:
            note(f"  {detail}")


def list_or_copy(
    names: Annotated[Sequence[str], Flag("which to copy, to change them", "NAME")] = (),
    *,
    to: Annotated[Path | None, Flag("where to (default: the current folder)", "DIR")] = None,
    force: Annotated[bool, Flag("overwrite files that exist")] = False,
) -> CommandResult:  # fmt: skip
    """Lists the configurations that come along, with the --env that each is made for; or copies some."""
    if names:
        copied = _copy(names, to or Path(), overwrite=force)
        rows = [
            {"name": config.name, "env": config.env, "file": str(target)} for config, target in copied.items()
        ]
        return CommandResult({"copied": rows}, _copied_lines(copied))
    if to is not None or force:
        raise UserError(
            "expected the names of configurations to copy, got none (without names they are listed)"
        )
    rows = [
        {"name": config.name, "env": config.env, "description": config.description}
        for config in bundled_configs().values()
    ]
    return CommandResult({"configs": rows}, _list_lines(rows))


def print_schema() -> None:
    """Prints the JSON Schema of the configuration, for editors."""
    say_json(json_schema(plugins=True), indent=2)


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
