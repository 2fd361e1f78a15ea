"""Players of games: the policies of a run, chance, or a scene's own expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainer_service.config import PlayerName
from trainer_service.errors import UserError
from trainer_service.running.collection.opponents import expert_actions
from trainer_service.running.collection.records import BehaviorTick
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.evaluation.evaluate import PolicyActors
from trainer_service.running.policy import Policy, by_behavior, chosen_checkpoints, random_policy
from trainer_service.running.runs.checkpoint import Checkpoint, load_checkpoint
from trainer_service.running.runs.folder import RunFolder
from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Tick
from unity_bridge.simulators.registry import experts, no_expert
from unity_bridge.simulators.scene import Demonstrator
from unity_bridge.specs import BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch


@dataclass(frozen=True, slots=True, eq=False)
class Player:
    """A player, frozen. It may sit on any side of any number of matches."""

    name: PlayerName

    policies: Mapping[str, Policy] = field(default_factory=dict)
    """By behavior name; empty for ``random`` and ``expert``."""

    seed: int = 0
    """The seed of random actions."""

    own_actors: PolicyActors | None = None
    """Actors of a player that is no policy, such as a person."""

    @property
    def step(self) -> int | None:
        """Agent steps that its policies were trained for, at most; None where it was not trained."""
        return max((policy.step for policy in self.policies.values()), default=None)


def load_player(name: PlayerName, results_dir: str | Path, *, device: str = "cpu", seed: int = 0) -> Player:
    """Loads the policies of a player, if it has any.

    Raises:
        UserError: there is no such run or checkpoint, it is damaged, or its group's members cannot act apart.
    """
    checkpoints = player_checkpoints(name, results_dir)
    policies = {each: Policy(found, device=device, seed=seed) for each, found in checkpoints.items()}
    return Player(name, by_behavior(policies), seed)


def player_checkpoints(name: PlayerName, results_dir: str | Path) -> dict[str, Checkpoint]:
    """Reads the checkpoints of a player, by behavior name. Raises UserError as ``load_player``."""
    if name.is_file:
        checkpoint = load_checkpoint(Path(name.text))
        return {checkpoint.behavior: checkpoint}
    if name.run_id is None:
        return {}
    try:
        paths = chosen_checkpoints(RunFolder.read(results_dir, name.run_id).path, name.which)
        return {each: load_checkpoint(path) for each, path in paths.items()}
    except UserError as error:
        raise UserError(f"player '{name.text}': {error}") from None


class RandomActors(PolicyActors):
    """Random policies, one for each behavior that a simulator declares."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        super().__init__({}, deterministic=False)

    def declare(self, tick: Tick) -> None:
        """Adds a policy for each new behavior. Raises UserError where a behavior is declared differently again."""
        for behavior_id, spec in tick.new_specs.items():
            name = parse_behavior_id(behavior_id).name
            if name not in self.policies:
                self.add(name, random_policy(name, spec, self._seed))
        super().declare(tick)


class ExpertActors(PolicyActors):
    """A scene's own expert."""

    def __init__(self, scene: Demonstrator | None = None) -> None:
        """scene: the scene, if it is in this process; None where a simulator sends the expert's actions along."""
        super().__init__({}, deterministic=True)
        self._scene = scene
        self._specs: dict[str, BehaviorSpec] = {}

    def declare(self, tick: Tick) -> None:
        """Takes in the behaviors that a tick declares."""
        self._specs |= tick.new_specs

    def policy_of(self, behavior_id: str) -> str:
        """The behavior's name."""
        return parse_behavior_id(behavior_id).name

    def members_of(self, name: str) -> tuple[MemberSpec, ...]:
        """None: an expert acts for each behavior."""
        return ()

    def act_as(self, tick: Tick, behavior_id: str) -> ActionBatch:
        """The expert's actions for all who wait. Raises UserError if the simulator did not send them."""
        if self._scene is not None:
            return self._scene.expert()[behavior_id]
        team, batch = parse_behavior_id(behavior_id).team, tick.steps[behavior_id]
        steps = BehaviorTick(tick.simulator, team, batch, behavior_id, tick.messages)
        return expert_actions(steps, self._specs[behavior_id])


def actors_of(player: Player, *, deterministic: bool) -> PolicyActors:
    """The actors of a player. deterministic: likeliest actions of policies instead of drawn ones."""
    if player.own_actors is not None:
        return player.own_actors
    if player.name.is_expert:
        return ExpertActors()
    if player.name.is_random:
        return RandomActors(player.seed)
    return PolicyActors(player.policies, deterministic=deterministic)


def with_expert(command: Command) -> Command:
    """The program that also sends what its own expert would do. Raises UserError where there is no expert."""
    if command.env not in experts():
        raise UserError(f"expert: {no_expert(command.env)}, or another player: random or the policy of a run")
    return replace(command, arguments=(*command.arguments, "--expert"))
