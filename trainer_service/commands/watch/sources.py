"""The scene to watch and the policies that act in it, by the names that users write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainer_service.config import PlayerName
from trainer_service.errors import UserError
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.evaluation.evaluate import PolicyActors
from trainer_service.running.evaluation.players import ExpertActors, RandomActors
from trainer_service.running.evaluation.simulator import EvaluationSimulator
from trainer_service.running.metrics import read_rows
from trainer_service.running.policy import Policy, by_behavior, chosen_checkpoints
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.process_guard import HostedExit, ProcessGuard
from unity_bridge.side_channels import pack_records
from unity_bridge.simulators import command as simulator
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Demonstrator, Scene, SceneError

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
        """Bytes of the metrics that the curve is of: the page asks every second, and most often nothing is new."""
        self._curve: list[dict[str, Any]] = []

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
        metrics, points = RunLayout(self.folder).metrics, []
        try:
            size = metrics.stat().st_size
            if size == self._read:
                return self._curve
            rows = read_rows(metrics)
        except (OSError, SaveError):
            return []
        for found in rows:
            mean = found.get("mean_group_return")
            mean = found.get("mean_return") if mean is None else mean
            if mean is not None:
                points.append({"behavior": found["behavior"], "step": found["step"], "return": mean})
        stride = -(-len(points) // POINTS_OF_CURVE) or 1
        self._read, self._curve = size, points[::stride]
        return self._curve


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
