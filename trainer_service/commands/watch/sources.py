"""The scene to watch and the policies that act in it, by the names that users write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from trainer_service.config import PlayerName, RunOptions, load_run_options
from trainer_service.errors import UserError
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.evaluation.evaluate import PolicyActors
from trainer_service.running.evaluation.players import ExpertActors, RandomActors
from trainer_service.running.evaluation.simulator import EvaluationSimulator
from trainer_service.running.metrics import read_rows
from trainer_service.running.metrics.summary import format_duration
from trainer_service.running.policy import Policy, by_behavior, chosen_checkpoints
from trainer_service.running.runs.layout import RunLayout
from trainer_service.running.runs.status import saved_status
from unity_bridge.process_guard import HostedExit, ProcessGuard
from unity_bridge.side_channels import pack_records
from unity_bridge.simulators import command as simulator
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Demonstrator, Scene, SceneError

_SILENCE_S = 600.0
"""Seconds without a summary after which a run may have been killed."""
POINTS_OF_CURVE = 400
"""Summaries that the page draws at most."""


@dataclass(frozen=True, slots=True)
class Acting:
    """Policies in a form that acts."""

    actors: PolicyActors

    policies: Mapping[str, Policy]
    """By behavior name; empty for ``random`` and ``expert``."""

    name: str
    """As the page shows it."""

    def policy_of(self, behavior_id: str) -> Policy | None:
        """The policy that acts for a behavior id, if there is one."""
        if len(self.policies) == 1:
            return next(iter(self.policies.values()))
        return self.policies.get(parse_behavior_id(behavior_id).name)


class RunSource:
    """The policies of a run, at any of its checkpoints, and its curve."""

    def __init__(self, folder: Path, *, deterministic: bool, seed: int) -> None:
        self.folder = folder
        self._deterministic = deterministic
        self._seed = seed
        self._seen: Mapping[str, float] = {}
        self._read = 0
        """Bytes of the metrics that the rows are of: the page asks every second, and most often nothing is new."""
        self._rows: list[dict[str, Any]] = []

    def load(self, which: str) -> Acting:
        """The policies of a checkpoint: ``last``, ``best`` or its step. Raises UserError where there is none."""
        paths = chosen_checkpoints(self.folder, which)
        loaded = {name: Policy.load(path, seed=self._seed) for name, path in paths.items()}
        policies = by_behavior(loaded)
        step = max(policy.step for policy in loaded.values())
        actors = PolicyActors(policies, deterministic=self._deterministic)
        return Acting(actors, policies, f"{self.folder.name} at step {step:,}")

    def newer(self) -> Acting | None:
        """The last checkpoint, if the run has saved since the last call; None if not, or while it saves."""
        try:
            times = {
                name: path.stat().st_mtime for name, path in chosen_checkpoints(self.folder, "last").items()
            }
            if times == self._seen or not times:
                return None
            acting = self.load("last")
        except (UserError, OSError):
            return None
        self._seen = times
        return acting

    def curve(self) -> list[dict[str, Any]]:
        """Step and mean return of each summary, every behavior's, evenly thinned."""
        metrics = RunLayout(self.folder).metrics
        try:
            size = metrics.stat().st_size
            rows = self._rows if size == self._read else read_rows(metrics)
        except (OSError, UserError):
            return []
        self._read, self._rows = size, rows
        points = [
            {"behavior": row["behavior"], "step": row["step"], "return": mean}
            for row in rows
            if (mean := _mean_return(row)) is not None
        ]
        stride = -(-len(points) // POINTS_OF_CURVE) or 1
        return points[::stride]

    def progress(self) -> str:
        """How far the run was at the last call of ``curve``, in words; empty where that is not known."""
        layout = RunLayout(self.folder)
        try:
            options = _options_of(layout.configuration, layout.configuration.stat().st_mtime_ns)
            row = self._rows[-1]
            most = options.behavior_settings(row["behavior"]).max_steps
            saved = saved_status(layout.status).behavior(row["behavior"]).final_checkpoint
            age_s = time.time() - layout.metrics.stat().st_mtime
            ended = layout.timers.exists() and time.time() - layout.timers.stat().st_mtime <= age_s
        except (UserError, OSError, IndexError):
            return ""
        step = max(row["step"], min(saved.steps, most) if ended and saved else 0)
        parts = [f"{step:,} of {most:,} steps"]
        if ended:
            parts.append("ended")
        elif row["step"] < most and row.get("steps_per_s") and age_s < _SILENCE_S:
            parts.append(f"{format_duration((most - row['step']) / row['steps_per_s'])} left")
        own = [_mean_return(each) for each in self._rows if each["behavior"] == row["behavior"]]
        if returns := [each for each in own if each is not None]:
            parts += [f"mean return {returns[-1]:.4g}", f"best {max(returns):.4g}"]
        return " · ".join(parts)


@lru_cache(maxsize=1)
def _options_of(configuration: Path, changed_ns: int) -> RunOptions:
    """The options of a run. A page asks every second, and they change only where the run is started again."""
    return load_run_options(configuration, {}).options


def _mean_return(row: Mapping[str, Any]) -> float | None:
    """The mean return of a summary: of groups where there are any."""
    mean = row.get("mean_group_return")
    return row.get("mean_return") if mean is None else mean


def player_source(name: PlayerName, scene: Scene | None, seed: int) -> Acting:
    """``random`` or ``expert`` as they act. Raises UserError for an expert that the scene does not have."""
    if name.is_expert:
        if not isinstance(scene, Demonstrator):
            raise UserError("--expert: this environment has no expert of its own; try --random")
        return Acting(ExpertActors(scene), {}, "expert")
    return Acting(RandomActors(seed), {}, "random actions")


@contextmanager
def opened_scene(played: EvaluationSimulator | None) -> Iterator[Scene | None]:
    """A simulator's environment as a scene of this process that can be rendered; None for a program of its own.

    Raises UserError where it cannot be opened.
    """
    if played is None or not played.command.is_bundled:
        yield None
        return
    command = played.command
    opener: Callable[..., Scene] = open_scene if command.environment is None else command.environment.open
    guard = ProcessGuard(command.env)
    try:
        arguments = simulator.parse([command.env, *command.arguments])
        academy = simulator.academy_for(arguments)
        academy.receive(pack_records(played.parameters()))
        scene = guard.call(partial(simulator.open_for, arguments, academy, opener, rendered=True))
    except (SceneError, HostedExit) as error:
        raise UserError(str(error)) from None
    guard.around(scene, "reset", "step", "render", "close")
    with closing(scene):
        yield scene
