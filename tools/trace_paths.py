"""The files, functions and calls of this trainer in one tick and in one update, counted by a profiler.

    python tools/trace_paths.py configs/3dball.yaml --env=sim:3dball
    python tools/trace_paths.py configs/spread_qmix.yaml --env=sim:spread --plain --files

A tick goes from a simulator's message to its actions, an update is all of ``Behavior.update``. Each is counted a few
times after the first calls, and the smallest count is shown. The display of progress is off, since how often it comes
depends on the machine. ``--plain`` counts the paths without kernels and other fast paths.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = tuple(str(REPOSITORY / package) + os.sep for package in ("trainer_service", "unity_bridge"))
WARM = {"tick": 40, "update": 2}
"""Calls before the counted ones."""
COUNTED = {"tick": 5, "update": 2}
"""Calls that are counted."""


@dataclass(slots=True)
class Trace:
    """Calls of our functions, in the order of time."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    """The file, from the repository on, and the function of each call."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Notes a call; to be given to ``sys.setprofile``."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES):
            self.calls.append((code.co_filename.removeprefix(str(REPOSITORY) + os.sep), code.co_qualname))

    @property
    def files(self) -> list[str]:
        """The files, in the order of their first call."""
        return list(dict.fromkeys(file for file, _ in self.calls))

    @property
    def functions(self) -> int:
        """Functions that were called at least once."""
        return len(set(self.calls))

    @property
    def changes(self) -> int:
        """Calls into another file than the call before."""
        return sum(one[0] != other[0] for one, other in zip(self.calls, self.calls[1:], strict=False))

    def summary(self, name: str) -> str:
        """A row of figures."""
        return (
            f"{name:8} {len(self.files):5} files {self.functions:5} functions {len(self.calls):7} calls "
            f"{self.changes:7} changes of file"
        )


def traces(config: Path, env: str, settings: Sequence[str] = ()) -> dict[str, Trace]:
    """Runs a configuration until ticks and updates were counted. Returns the traces with the fewest functions."""
    from trainer_service.cli import main
    from trainer_service.running.behaviors.behavior import Behavior
    from trainer_service.running.collection.simulators import Simulators
    from trainer_service.running.training import progress_log

    found: dict[str, list[Trace]] = {"tick": [], "update": []}
    counts: Counter[str] = Counter()

    def traced(name: str, call: Callable[..., Any], *, is_last: bool = True) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            number = counts[name] - WARM[name]
            counts[name] += is_last
            if not 0 <= number < COUNTED[name]:
                return call(*args)
            if len(found[name]) == number:
                found[name].append(Trace())
            sys.setprofile(found[name][number])
            try:
                return call(*args)
            finally:
                sys.setprofile(None)
                if all(counts[each] >= WARM[each] + COUNTED[each] for each in found):
                    os.kill(os.getpid(), signal.SIGINT)  # the run saves and ends

        return counted

    replaced = (
        (Simulators, "collect", traced("tick", Simulators.collect, is_last=False)),
        (Simulators, "act", traced("tick", Simulators.act)),
        (Behavior, "update", traced("update", Behavior.update)),
        (progress_log, "UPDATE_INTERVAL_S", math.inf),
    )
    before = [getattr(owner, attribute) for owner, attribute, _ in replaced]
    for owner, attribute, value in replaced:
        setattr(owner, attribute, value)
    try:
        with tempfile.TemporaryDirectory() as folder:
            line = [
                "learn",
                str(config),
                f"--env={env}",
                "--run-id=traced",
                f"--results-dir={folder}",
                "--seed=1",
                "--set=env_settings.isolate=true",  # else a tick has the simulator's own work in it
            ]
            if main([*line, *(f"--set={each}" for each in settings)]) != 0:
                raise SystemExit(f"{config} did not run")
    finally:
        for (owner, attribute, _), value in zip(replaced, before, strict=True):
            setattr(owner, attribute, value)
    return {name: min(each, key=lambda trace: trace.functions) for name, each in found.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Counts what runs in one tick and in one update.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--env", required=True)
    parser.add_argument("--plain", action="store_true", help="without kernels and other fast paths")
    parser.add_argument("--files", action="store_true", help="name the files")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY.KEY=VALUE")
    parsed = parser.parse_args(argv)
    if parsed.plain:
        os.environ["TRAINER_SERVICE_SLOW"] = "1"
    found = traces(parsed.config, parsed.env, parsed.settings)
    for name, trace in found.items():
        print(trace.summary(name))
        for file in trace.files if parsed.files else ():
            print(f"  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
