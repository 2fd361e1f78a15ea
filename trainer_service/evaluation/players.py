"""Players of games: the policies of a run, chance, or a scene's own expert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer_service.collection.opponents import expert_actions
from trainer_service.collection.records import BehaviorTick
from trainer_service.collection.router import parse_behavior_id
from trainer_service.config import PlayerName
from trainer_service.errors import UserError
from trainer_service.evaluation.evaluate import PolicyActors
from trainer_service.policy import Policy, by_behavior, chosen_checkpoints, random_policy
from trainer_service.runs.checkpoint import Checkpoint, load_checkpoint
from trainer_service.runs.folder import RunFolder
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch


@dataclass(frozen=True, slots=True, eq=False)
class Player:
    """A player, frozen. It may sit on any side of any number of matches."""

    name: PlayerName

    policies: Mapping[str, Policy] = field(default_factory=dict)
    """By behavior name; empty for ``random`` and ``expert``."""

    seed: int = 0
    """Of what is drawn at random."""

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


class Seat:
    """A player on one side of a match."""

    def __init__(self, player: Player, *, deterministic: bool) -> None:
        self._player = player
        self._actors = PolicyActors(player.policies, deterministic=deterministic)

    def declare(self, specs: Mapping[str, BehaviorSpec]) -> None:
        """Takes the player's place as these behavior ids.

        Raises:
            UserError: the player has no policy for one of them, or one of a different behavior.
        """
        player = self._player
        if player.name.is_expert:
            return
        if player.name.is_random:
            named = {parse_behavior_id(each).name: spec for each, spec in specs.items()}
            chance = {name: random_policy(name, spec, player.seed) for name, spec in named.items()}
            self._actors = PolicyActors(chance, deterministic=False)
        try:
            self._actors.declare(Tick(0, specs, {}))
        except UserError as error:
            raise UserError(f"player '{player.name.text}' as {', '.join(specs)}: {error}") from None

    def act(self, tick: Tick, behavior_id: str, spec: BehaviorSpec) -> ActionBatch:
        """The player's actions for all who wait of a behavior id.

        Raises:
            UserError: the expert shall act, and the simulator has not said what it would do.
        """
        if not self._player.name.is_expert:
            return self._actors.act_as(tick, behavior_id)
        team, batch = parse_behavior_id(behavior_id).team, tick.steps[behavior_id]
        return expert_actions(BehaviorTick(tick.simulator, team, batch, behavior_id, tick.messages), spec)

    def drop(self, simulator: int) -> None:
        """Forgets what policies remember of a simulator that begins anew."""
        self._actors.drop(simulator)
