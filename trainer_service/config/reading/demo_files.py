"""Whether the demonstrations that a configuration names are there, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer_service.config.rewards import GAILSettings
from trainer_service.config.run_options import RunOptions
from trainer_service.config.trainer import TrainerSettings

_SUFFIX = ".demo"
"""As ``unity_bridge.demonstrations`` has it: to import that takes longer than to read a configuration."""


def missing_demonstrations(options: RunOptions, steps: Mapping[str, int] | None = None) -> list[str]:
    """Every ``demo_path`` that leads to no .demo file and no folder with one, each naming its key.

    Relative paths start from the current folder. ``default_settings`` count where no behavior is listed: who comes
    from them beside others is known only when it shows up. steps: where behaviors stand that are gone on with;
    cloning that is over there needs no files any more.
    """
    missing: list[str] = []
    for name, settings in options.behaviors.items():
        missing += _missing(f"behaviors.{name}", settings, (steps or {}).get(name, 0))
    if not options.behaviors and options.default_settings is not None:
        missing += _missing("default_settings", options.default_settings, 0)
    return missing


def _missing(path: str, settings: TrainerSettings, step: int) -> Iterator[str]:
    for key, demo_path in _demo_paths(settings, step):
        if fault := _fault(Path(demo_path)):
            yield f"{path}.{key}: expected a {_SUFFIX} file or a folder of them, {fault}"


def _demo_paths(settings: TrainerSettings, step: int) -> Iterator[tuple[str, str]]:
    for name, signal in settings.reward_signals.items():
        if isinstance(signal, GAILSettings):
            yield f"reward_signals.{name}.demo_path", signal.demo_path
    cloning = settings.behavioral_cloning
    if cloning is not None and not cloning.has_faded_out(step):
        yield "behavioral_cloning.demo_path", cloning.demo_path


def _fault(path: Path) -> str | None:
    if path.is_dir():
        return None if any(path.glob(f"*{_SUFFIX}")) else f"the folder '{path}' holds none"
    if not path.exists():
        return f"'{path}' does not exist" + ("" if path.is_absolute() else f" in '{Path.cwd()}'")
    return None if path.suffix == _SUFFIX else f"got '{path}'"
