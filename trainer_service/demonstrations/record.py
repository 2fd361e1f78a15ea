"""Recordings of demonstrators: of a scene's own expert, or of a trained run's policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer_service.collection.collectors import parse_behavior_id
from trainer_service.collection.policy_actor import PolicyActor
from trainer_service.errors import UserError
from trainer_service.evaluation.evaluate import policies_for
from trainer_service.policy import Policy, by_behavior
from trainer_service.rollout.whole_episodes import WholeEpisodes
from unity_bridge.demonstrations import SUFFIX, DemonstrationWriter
from unity_bridge.errors import SimulatorLost
from unity_bridge.server.bridge import Bridge, Departure
from unity_bridge.simulators.command import academy_for, open_for, parse
from unity_bridge.simulators.registry import experts
from unity_bridge.simulators.scene import Demonstrator, SceneError
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a recording."""

    behavior: str
    returns: tuple[float, ...]
    """The raw return of each episode: the sum of the agent's own rewards."""

    steps: int


class Recording:
    """One behavior's episodes on their way into a file. Episodes that are complete when the context ends are kept."""

    def __init__(
        self,
        path: Path,
        *,
        episodes: int,
        behavior: str | None = None,
        progress: Callable[[int, int], None] = lambda done, wanted: None,
    ) -> None:
        """
        Args:
            path: of the file.
            episodes: the first so many that start.
            behavior: which; may be left out if there is only one.
            progress: told how many episodes of how many are done.
        """
        self._path = path
        self._episodes = WholeEpisodes(episodes)
        self._wanted = behavior
        self._progress = progress
        self._specs: dict[str, BehaviorSpec] = {}
        self._writer: DemonstrationWriter | None = None
        self._returns: list[float] = []
        self._steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        if kind is None and self._returns:
            self._writer.close()
        else:
            self._writer.abandon()

    @property
    def complete(self) -> bool:
        """Whether every episode that was asked for is there."""
        return self._episodes.complete

    @property
    def behavior(self) -> str:
        """The name of the recorded behavior; empty before any is declared."""
        return self._wanted or next(iter(self._specs), "")

    @property
    def recorded(self) -> Recorded:
        """The episodes that are there so far."""
        return Recorded(self.behavior, tuple(self._returns), self._steps)

    def declare(self, specs: Mapping[str, BehaviorSpec]) -> None:
        """Takes in new behaviors, by full id, and begins the file.

        Raises:
            UserError: the one that is wanted is not there, or there are several and none was named.
            DemonstrationError: the file cannot be written.
        """
        self._specs |= {parse_behavior_id(behavior_id)[0]: spec for behavior_id, spec in specs.items()}
        names = ", ".join(self._specs)
        if len(self._specs) > 1 and self._wanted is None:
            raise UserError(f"a recording holds one behavior, here are {names}; choose with --behavior")
        if self._specs and self.behavior not in self._specs:
            raise UserError(f"--behavior: expected one of {names}, got '{self.behavior}'")
        if self._specs and self._writer is None:
            self._writer = DemonstrationWriter(
                self._path, self.behavior, self._specs[self.behavior], name=self._path.stem
            )

    def observe(self, simulator: int, behavior_id: str, batch: StepBatch) -> None:
        """Takes in a behavior's part of a tick; writes the episodes that it ended."""
        name, team = parse_behavior_id(behavior_id)
        if name != self.behavior or self._writer is None:
            return
        for episode in self._episodes.observe(simulator, team, batch):
            self._writer.write(episode)
            self._returns.append(float(episode.rewards.sum(dtype=float)))
            self._steps += len(episode)
            self._progress(len(self._returns), self._episodes.wanted)

    def acted(self, simulator: int, behavior_id: str, batch: StepBatch, actions: ActionBatch) -> None:
        """Takes in the actions that a tick was answered with."""
        name, team = parse_behavior_id(behavior_id)
        if name == self.behavior:
            self._episodes.acted(simulator, team, batch, actions)


def record_expert(
    scene: Demonstrator, recording: Recording, *, seed: int, stopped: Callable[[], bool]
) -> None:
    """Records a scene's own expert until every episode is there, or a stop is requested.

    Raises:
        SceneError: the scene went wrong.
        UserError, DemonstrationError: as from ``Recording.declare``.
    """
    recording.declare(scene.behaviors)
    steps = scene.reset(seed)
    while True:
        for behavior_id, batch in steps.items():
            recording.observe(0, behavior_id, batch)
        if recording.complete or stopped():
            return
        actions = scene.expert()
        for behavior_id, waiting in actions.items():
            recording.acted(0, behavior_id, steps[behavior_id], waiting)
        steps = scene.step(actions)


def record_policies(
    bridge: Bridge,
    policies: Mapping[str, Policy],
    recording: Recording,
    *,
    deterministic: bool,
    stopped: Callable[[], bool],
) -> None:
    """Records trained policies until every episode is there, or a stop is requested.

    Raises:
        UserError: a simulator with a behavior that has no policy, or a different one; or as from ``declare``.
        BridgeError: a simulator failed; or the file cannot be written.
    """
    policies = by_behavior(policies)
    actors = {name: PolicyActor(policy, deterministic) for name, policy in policies.items()}
    policy_of: dict[str, str] = {}
    while not (recording.complete or stopped()):
        for event in bridge.receive(_POLL_S):
            if isinstance(event, Departure):
                raise SimulatorLost(event.reason)
            policy_of |= policies_for(event, policies)
            recording.declare(event.new_specs)
            replies: dict[str, ActionBatch] = {}
            for behavior_id, batch in event.steps.items():
                name, team = parse_behavior_id(behavior_id)
                recording.observe(event.simulator, behavior_id, batch)
                replies[behavior_id] = actors[policy_of[name]].act(event.simulator, team, batch)
                recording.acted(event.simulator, behavior_id, batch, replies[behavior_id])
            bridge.reply(event.simulator, replies)


def open_expert(env: str, arguments: Sequence[str]) -> Demonstrator:
    """A scene that can show how it is done, with arguments as ``simulate`` takes them.

    Raises:
        UserError: there is no such scene, or it has no expert.
    """
    scheme, _, _ = env.partition(":")
    if scheme != "sim":
        raise UserError(
            f"'{env}' has no expert of its own; expected one of {', '.join(experts())}, "
            "or the policy of a run with --policy RUN_ID"
        )
    wanted = parse([env, *arguments])
    for flag in ("seed", "episodes", "record"):
        if getattr(wanted, flag) is not None:
            raise UserError(f"--env-args --{flag}: of no use for a recording of an expert")
    try:
        scene = open_for(wanted, academy_for(wanted))
    except SceneError as error:
        raise UserError(str(error)) from None
    if not isinstance(scene, Demonstrator):
        raise UserError(f"'{env}' has no expert of its own; expected one of {', '.join(experts())}")
    return scene


def check_target(path: Path, *, force: bool) -> None:
    """Raises UserError unless a recording may be written there."""
    if path.is_dir():
        raise UserError(f"-o: expected the name of a file, got the folder '{path}'")
    if path.suffix != SUFFIX:
        raise UserError(
            f"-o: expected a name that ends in {SUFFIX}, got '{path}'; say '{path.with_suffix(SUFFIX)}'"
        )
    if path.exists() and not force:
        raise UserError(f"'{path}' exists; --force replaces it")
