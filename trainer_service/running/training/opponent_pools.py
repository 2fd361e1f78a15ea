"""The fixed opponents of a run's behaviors, read before anything is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from trainer_service.config import RunOptions, SelfPlaySettings
from trainer_service.errors import ConfigError, UserError
from trainer_service.running.collection.launching import needs_expert
from trainer_service.running.collection.opponents import FixedOpponent
from trainer_service.running.evaluation.players import player_checkpoints
from unity_bridge.simulators.registry import experts, no_expert

if TYPE_CHECKING:
    from trainer_service.running.runs.checkpoint import Checkpoint

Checkpoints = Mapping[str, Mapping[str, "Checkpoint"]]
"""Those of each fixed opponent, by its name and by behavior."""


def read_opponents(options: RunOptions) -> Checkpoints:
    """The checkpoints of all fixed opponents.

    Raises:
        UserError: one is missing, damaged, or has no policy of a behavior that wants it; or an expert is wanted of a
            scene that has none.
    """
    if options.checkpoint_settings.inference:
        return {}
    env = options.env_settings.env_path
    if needs_expert(options) and env is not None and env not in experts():
        raise ConfigError(f"self_play.opponents: {no_expert(env)}")
    found: dict[str, Mapping[str, Checkpoint]] = {}
    for path, behavior, settings in _self_play(options):
        for name in settings.fixed_opponents:
            if name.run_id is None and not name.is_file:
                continue
            try:
                if name.text not in found:
                    found[name.text] = player_checkpoints(name, options.checkpoint_settings.results_dir)
                if behavior is not None:
                    _checkpoint_for(behavior, found[name.text], name.text)
            except UserError as error:
                raise ConfigError(f"{path}.self_play.opponents: {error}") from None
    return found


def fixed_opponents(
    behavior: str, settings: SelfPlaySettings, checkpoints: Checkpoints
) -> list[FixedOpponent]:
    """The fixed opponents of a behavior. Raises UserError where one has no policy of it."""
    return [
        FixedOpponent(
            name,
            _checkpoint_for(behavior, checkpoints[name.text], name.text)
            if name.text in checkpoints
            else None,
            settings.initial_elo,
        )
        for name in settings.fixed_opponents
    ]


def _self_play(options: RunOptions) -> Iterator[tuple[str, str | None, SelfPlaySettings]]:
    """Every section self_play: where it stands, the behavior if it is known, and the section."""
    for name, settings in options.behaviors.items():
        if settings.self_play is not None:
            yield f"behaviors.{name}", name, settings.self_play
    default = options.default_settings
    if default is not None and default.self_play is not None:
        yield "default_settings", None, default.self_play


def _checkpoint_for(behavior: str, checkpoints: Mapping[str, Checkpoint], player: str) -> Checkpoint:
    """The policy of the behavior, or the only one that there is: a task may have another name elsewhere."""
    if behavior in checkpoints:
        return checkpoints[behavior]
    if len(checkpoints) == 1:
        return next(iter(checkpoints.values()))
    raise UserError(f"player '{player}': it has no policy of '{behavior}', only of {', '.join(checkpoints)}")
