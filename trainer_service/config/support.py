"""What this version can run, of all that a configuration can say."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_service.config.run_options import RunOptions
from trainer_service.config.trainer import TrainerSettings

TRAINER_TYPES = frozenset({"ppo", "sac"})
RECURRENT = frozenset({"ppo"})
"""Trainer types whose policies can have a memory."""
REWARD_SIGNALS = frozenset({"extrinsic", "curiosity", "rnd"})


def unsupported_features(options: RunOptions) -> list[str]:
    """Everything that a run would need and does not find, each naming its key; empty if it can start.

    ``default_settings`` count where no behavior is listed. Where some are, a behavior that comes from the
    defaults is known only when it shows up: ask ``unsupported_in_behavior`` then.
    """
    missing: list[str] = []
    for name, settings in options.behaviors.items():
        missing += unsupported_in_behavior(f"behaviors.{name}", settings)
    if not options.behaviors and options.default_settings is not None:
        missing += unsupported_in_behavior("default_settings", options.default_settings)
    return missing


def unsupported_in_behavior(path: str, settings: TrainerSettings) -> list[str]:
    """The same for one behavior, whose keys lie below ``path`` in messages."""
    return [f"{path}.{key}: {what} not supported yet" for key, what in _missing(settings)]


def _missing(settings: TrainerSettings) -> Iterator[tuple[str, str]]:
    if settings.trainer_type not in TRAINER_TYPES:
        yield "trainer_type", f"'{settings.trainer_type}' is"
    elif settings.network_settings.memory is not None and settings.trainer_type not in RECURRENT:
        yield "network_settings.memory", f"recurrent policies of '{settings.trainer_type}' are"
    for name in settings.reward_signals:
        if name not in REWARD_SIGNALS:
            yield f"reward_signals.{name}", "this reward signal is"
    if settings.behavioral_cloning is not None:
        yield "behavioral_cloning", "behavioral cloning is"
    if settings.self_play is not None:
        yield "self_play", "self-play is"
