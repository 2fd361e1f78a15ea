"""Behavioral cloning of a behavior from demonstrations alone, without a simulator."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainer_service.config import BehavioralCloningSettings, TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.cloning import BehavioralCloning
from trainer_service.learning.imitation import check_fit
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.demonstrations import open_demonstrations
from unity_bridge.specs import BehaviorSpec, FloatOrder
from unity_bridge.untrusted_text import quoted

HELD_OUT = 0.1
"""The share of episodes that measures the policy and that it does not learn from."""

_MIN_EPISODES = 5
"""With fewer episodes, one of them is too much to hold out."""

_BATCH_SIZE = 128
"""Steps of one gradient step at most, unless the configuration says more: trainers' own batches are of rollouts."""


def demonstrated_behavior(path: Path, float_order: FloatOrder = "hwc") -> tuple[str, BehaviorSpec]:
    """The name and the spec of the one behavior in a recording, or in a folder of them.

    float_order: of uncompressed pictures, see ``DemonstrationFile``.

    Raises:
        DemonstrationError: there is no recording, or one cannot be read.
        UserError: the recordings are of different behaviors.
    """
    first, *others = open_demonstrations(path, float_order)
    for file in others:
        if file.behavior_name != first.behavior_name:
            raise UserError(
                f"'{path}': expected recordings of one behavior, got {quoted(first.behavior_name)} in '{first.path}' "
                f"and {quoted(file.behavior_name)} in '{file.path}'"
            )
        try:
            check_fit(file, first.spec)
        except UserError as error:
            raise UserError(f"{error}, by '{first.path}'") from None
    return first.behavior_name, first.spec


def cloning_settings(name: str, settings: TrainerSettings, path: Path) -> TrainerSettings:
    """The settings of a behavior that clones: one pass over all demonstrated steps is an epoch, and nothing fades.

    ``strength`` and ``batch_size`` of its own ``behavioral_cloning`` stay. It does not play against itself.

    Raises:
        UserError: the trainer type does not clone one agent's demonstrations.
    """
    hyper = settings.hyperparameters
    if not hyper.supports_cloning or hyper.learns_by_group:
        why = (
            "learns groups, and demonstrations do not say how many agents are in one"
            if hyper.learns_by_group
            else "does not learn from demonstrations"
        )
        raise UserError(
            f"behavior '{name}': trainer type '{settings.trainer_type}' {why}; expected one that learns single agents, "
            "such as ppo or sac"
        )
    own = settings.behavioral_cloning
    cloning = BehavioralCloningSettings(
        demo_path=str(path),
        strength=1.0 if own is None else own.strength,
        num_epoch=1,
        batch_size=own.batch_size if own and own.batch_size else min(hyper.batch_size, _BATCH_SIZE),
    )
    return settings.model_copy(update={"behavioral_cloning": cloning, "self_play": None})


class OfflineCloning:
    """Epochs of cloning, of a behavior that was made with ``cloning_settings``; the best one's weights are kept."""

    def __init__(self, behavior: Behavior) -> None:
        """Reads the demonstrations, holds episodes out, and fits the normalizer to the others.

        Raises:
            UserError: the demonstrations cannot be read, or the learner does not clone.
        """
        cloning = getattr(behavior.learner, "cloning", None)
        if not isinstance(cloning, BehavioralCloning):
            raise UserError(
                f"behavior '{behavior.name}': trainer type '{behavior.settings.trainer_type}' does not clone"
            )
        self._behavior, self._cloning = behavior, cloning
        everything = cloning.demonstrations.read()
        order = np.random.default_rng(behavior.compute.seed).permutation(len(everything.lengths))
        count = 0 if len(order) < _MIN_EPISODES else max(round(HELD_OUT * len(order)), 1)
        self.training = everything.episodes(np.sort(order[count:]))
        """Demonstrations that are learned from."""
        self.held_out = everything.episodes(np.sort(order[:count])) if count else None
        """Demonstrations that are not; None where there are too few episodes."""
        cloning.demonstrations.replace(self.training)
        cloning.leaves_deviation = True
        device = behavior.compute.device
        behavior.learner.actor.normalizer.update(
            [sensor.to(device) for sensor in self.training.steps.observations]
        )
        self._best: tuple[float, int, Mapping[str, Any]] | None = None
        """The smallest loss, and the behavior's step and state then."""

    def learn_epoch(self) -> dict[str, float]:
        """Learns from every demonstrated step once, and counts these steps. Returns losses and scores by tag.

        Raises:
            UserError: a loss is not finite; the behavior is ``diverged`` from now on.
        """
        behavior = self._behavior
        metrics = dict(self._cloning.update(behavior.step))
        behavior.step += len(self.training)
        judged = metrics["Losses/Pretraining Loss"]
        if self.held_out is not None:
            score = self._cloning.evaluate(self.held_out)
            judged = metrics["Losses/Held-out Loss"] = score.loss
            if score.accuracy is not None:
                metrics["Policy/Held-out Accuracy"] = score.accuracy
        if broken := [tag for tag, value in metrics.items() if not math.isfinite(value)]:
            behavior.diverged = True
            raise UserError(
                f"behavior '{behavior.name}' diverged after {behavior.step} demonstrated steps: {', '.join(broken)} "
                "became NaN or infinite. A smaller learning_rate usually helps."
            )
        if self._best is None or judged < self._best[0]:
            self._best = judged, behavior.step, copy.deepcopy(behavior.learner.state_dict())
        return metrics

    def restore_best(self) -> int:
        """Takes back the weights of the epoch with the smallest held-out loss, or training loss without one.

        Returns the number of demonstrated steps that they have learned from; 0 before the first epoch.
        """
        if self._best is None:
            return 0
        _, step, state = self._best
        self._behavior.learner.load_state_dict(state)
        return step
