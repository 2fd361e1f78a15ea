"""Saving and restoring a behavior: checkpoints, replay buffers and models."""

from __future__ import annotations

from pathlib import Path

from trainer_service.config import changed_activations, changed_networks
from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.member_policy import ExportedNetwork, models_of
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.runs.checkpoint import MISFIT_ERRORS, Checkpoint, spec_mismatch
from trainer_service.running.runs.replay_file import ReplayFile, ReplaySave, ReplayStamp
from unity_bridge.specs import BehaviorSpec


def checkpoint_of(behavior: Behavior) -> Checkpoint:
    """Returns a checkpoint of the behavior's present state."""
    self_play = None
    if behavior.self_play is not None and (opponents := behavior.collector.opponents) is not None:
        self_play = {"rules": behavior.self_play.state_dict(), **opponents.state_dict()}
    return Checkpoint(
        behavior.name,
        behavior.step,
        behavior.spec,
        behavior.settings,
        behavior.learner.state_dict(),
        self_play,
        behavior.episodes,
        env_steps=behavior.env_steps.taken,
    )


def restore(behavior: Behavior, checkpoint: Checkpoint) -> None:
    """Restores a behavior from a checkpoint of its run. Raises UserError if it does not fit."""
    _load(behavior, checkpoint, weights_only=False)
    behavior.resume_at(checkpoint.step, checkpoint.episodes)


def initialize(behavior: Behavior, checkpoint: Checkpoint) -> None:
    """Loads the weights of another run, at step 0. Raises UserError if they do not fit."""
    _load(behavior, checkpoint, weights_only=True)


def _load(behavior: Behavior, checkpoint: Checkpoint, *, weights_only: bool) -> None:
    _require_fit(behavior, checkpoint)
    load = behavior.learner.load_weights if weights_only else behavior.learner.load_state_dict
    try:
        load(checkpoint.algorithm)
        saved, opponents = checkpoint.self_play, behavior.collector.opponents
        if (
            behavior.self_play is not None
            and opponents is not None
            and saved is not None
            and not weights_only
        ):
            behavior.self_play.load_state_dict(saved["rules"])
            opponents.load_state_dict(saved)
    except MISFIT_ERRORS as error:
        changed = changed_networks(checkpoint.settings, behavior.settings)
        raise _misfit(behavior, ", ".join(changed) or " ".join(str(error).split())[:300]) from None


def _require_fit(behavior: Behavior, checkpoint: Checkpoint) -> None:
    """Raises UserError if a checkpoint has another spec, trainer type or kind of network."""
    changed = spec_mismatch(checkpoint.spec, behavior.spec)
    counts = [[each.num_agents for each in spec.members] for spec in (checkpoint.spec, behavior.spec)]
    if changed is None and counts[0] != counts[1]:
        names = ", ".join(f"'{member.behavior}'" for member in behavior.spec.members)
        changed = f"a group had at most {counts[0]} agents of {names}, now {counts[1]}"
    if changed:
        raise UserError(f"behavior '{behavior.name}' is not what its checkpoint was trained for: {changed}")
    if checkpoint.settings.trainer_type != behavior.settings.trainer_type:
        raise UserError(
            f"behavior '{behavior.name}': the checkpoint is of trainer type "
            f"'{checkpoint.settings.trainer_type}', the configuration says '{behavior.settings.trainer_type}'"
        )
    if changes := changed_activations(checkpoint.settings, behavior.settings):
        raise _misfit(behavior, ", ".join(changes))


def _misfit(behavior: Behavior, why: str) -> UserError:
    return UserError(
        f"behavior '{behavior.name}': the checkpoint does not fit the configured networks: {why}"
    )


def hold_replay(behavior: Behavior, path: Path) -> ReplaySave | None:
    """Returns the pending save of the present replay buffer, beside the checkpoint; None without a replay buffer."""
    if (arrays := behavior.learner.replay_state()) is None:
        return None
    if behavior.replay_file is None or behavior.replay_file.path != path:
        behavior.replay_file = ReplayFile(path)
    return behavior.replay_file.hold(arrays)


def load_replay(behavior: Behavior, path: Path) -> ReplayStamp:
    """Restores the replay buffer that was saved beside the checkpoint, and returns the stamp of that save.

    Raises UserError if it is damaged.
    """
    behavior.replay_file = ReplayFile(path)
    return behavior.replay_file.load(behavior.learner.load_replay_state)


def models(behavior: Behavior) -> dict[str, tuple[ExportedNetwork, BehaviorSpec]]:
    """Returns copies of the acting networks for export, with their inputs, by behavior or group member."""
    network, selector = behavior.learner.actor.policy_network(), behavior.collector.selector
    network.input_sensors = selector.input_sensors
    return models_of(network, behavior.name, selector, behavior.settings.hyperparameters)
