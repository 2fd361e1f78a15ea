"""The command ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from trainer_service.commands.common.command import Flag, Settings
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.doctor import Finding, Setup, run_checks
from trainer_service.config import RunOptions, load_run_options
from trainer_service.errors import ConfigError
from unity_bridge.transport.ports import port_number


class Findings:
    """The findings of all checks, which are made as they are read."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._broken: list[str] = []

    @property
    def exit_code(self) -> int:
        """2 where something is broken."""
        return 2 if self._broken else 0

    def to_json(self) -> dict[str, Any]:
        """The findings as the object that ``doctor --json`` prints."""
        checks = [finding.to_json() for finding in self._findings()]
        return {"ok": not self._broken, "checks": checks}

    def lines(self) -> Iterator[object]:
        """Yields each finding when it is known, and at the end the names of the broken parts."""
        warnings = 0
        for finding in self._findings():
            warnings += finding.verdict == "warn"
            yield finding
        if self._broken:
            yield f"To mend: {', '.join(dict.fromkeys(self._broken))}"
        else:
            yield "All checks passed" + (f", {warnings} with a warning." if warnings else ".")

    def _findings(self) -> Iterator[Finding]:
        for finding in run_checks(self._setup):
            if finding.verdict == "fail":
                self._broken.append(finding.subject)
            yield finding


def examine(
    config: Annotated[Path | None, Flag("a configuration to validate", "CONFIG.yaml")] = None,
    *,
    port: Annotated[int, Flag("where simulators would attach (default 5004)", "PORT", type=port_number)] = 5004,
    ray_address: Annotated[str | None, Flag(
        "a Ray cluster to look at, and for --env on its nodes: auto, HOST:PORT, ray://HOST:PORT; local starts one",
        "ADDRESS", names="--ray")] = None,
    join: Annotated[str | None, Flag(
        "the join code of a trainer on another machine; without CODE that in TRAINER_SERVICE_JOIN", "CODE", nargs="?",
        const="")] = None,
    address: Annotated[str | None, Flag("where that trainer is (default: what its code says)", "HOST:PORT")] = None,
    **settings: Annotated[Any, Settings(
        "env_path", "no_graphics", "timeout_wait", "results_dir", "device", "insecure_ray", "env_args")],
) -> Findings:  # fmt: skip
    """Looks at the installation, this machine, and a configuration and a simulator if they are given."""
    options = _options(config, nested({**settings, "ray_address": ray_address}, SETTINGS))
    return Findings(Setup(options=options, port=port, config=config, join=join, address=address))


def _options(config: Path | None, overrides: Mapping[str, Any]) -> RunOptions:
    """Options of the file and the flags; of the flags alone if the file has mistakes, which are reported elsewhere."""
    try:
        return load_run_options(config, overrides).options
    except ConfigError:
        if config is None:
            raise
        return load_run_options(None, overrides).options
