"""Warnings of settings that are legal, yet probably not meant."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_service.config.hyperparameters.common import Hyperparameters
from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters
from trainer_service.config.hyperparameters.on_policy import OnPolicyHyperparameters
from trainer_service.config.reading.document import Problem
from trainer_service.config.run_options import RunOptions
from trainer_service.config.section import Location
from trainer_service.config.trainer import TrainerSettings


def advice(options: RunOptions) -> list[Problem]:
    """Lists everything odd about ``options``."""
    return [*_about_behaviors(options), *_about_checkpoints(options)]


def without_updates(options: RunOptions) -> list[str]:
    """Lists the behaviors whose ``max_steps`` end the run before the first update, each by its key.

    ``default_settings`` count where no behavior is listed.
    """
    if options.checkpoint_settings.inference:
        return []
    sections = {f"behaviors.{name}": settings for name, settings in options.behaviors.items()}
    if not sections and options.default_settings is not None:
        sections["default_settings"] = options.default_settings
    found = []
    for path, settings in sections.items():
        key, steps = _first_update(settings.hyperparameters)
        if 0 < settings.max_steps < steps:
            found.append(
                f"{path}.max_steps: {settings.max_steps} ends the run before the first update, which needs {steps} "
                f"agent steps (hyperparameters.{key}): the policy will not learn. Set max_steps to {steps} or more, "
                f"or {key} to a smaller number"
            )
    return found


def _first_update(hyper: Hyperparameters) -> tuple[str, int]:
    """The key that decides when a learner first updates its policy, and the agent steps before that."""
    if isinstance(hyper, ReplayHyperparameters):
        is_batch = hyper.learning_starts > hyper.buffer_init_steps
        return "batch_size" if is_batch else "buffer_init_steps", hyper.first_update
    return "buffer_size", hyper.buffer_size if isinstance(hyper, OnPolicyHyperparameters) else 0


def _about_behaviors(options: RunOptions) -> Iterator[Problem]:
    if not options.behaviors and options.default_settings is None:
        yield Problem((), "neither 'behaviors' nor 'default_settings': every behavior will be refused")
    if options.default_settings is not None:
        yield from _about_behavior(("default_settings",), options.default_settings)
    for name, settings in options.behaviors.items():
        yield from _about_behavior(("behaviors", name), settings)


def _about_behavior(location: Location, settings: TrainerSettings) -> Iterator[Problem]:
    tuning = settings.hyperparameters
    if tuning.learns and tuning.batch_size > tuning.buffer_size:
        effect = "a batch has rows twice" if tuning.learns_from_replay else "one step per epoch"
        yield Problem(
            (*location, "hyperparameters", "batch_size"),
            f"{tuning.batch_size} is more than the buffer_size of {tuning.buffer_size}: {effect}",
        )
    for remark in settings.remarks():
        yield Problem((*location, *remark.location), remark.text)
    if settings.self_play and not 0 <= settings.self_play.play_against_latest_model_ratio <= 1:
        where = (*location, "self_play", "play_against_latest_model_ratio")
        yield Problem(where, "is a probability and should lie between 0 and 1")


def _about_checkpoints(options: RunOptions) -> Iterator[Problem]:
    if options.checkpoint_settings.load_model:
        yield Problem(
            ("checkpoint_settings", "load_model"),
            "the --load option is deprecated and has no effect: use --resume instead",
        )
    if options.checkpoint_settings.train_model:
        yield Problem(
            ("checkpoint_settings", "train_model"),
            "the --train option is deprecated and has no effect: training is the default, --inference only acts",
        )
