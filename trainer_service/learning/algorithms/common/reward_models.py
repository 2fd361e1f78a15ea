"""Reward signals by name, in the order of their value heads, with behavioral cloning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms.common.cloning import BehavioralCloning
from trainer_service.learning.imitation import read_all
from trainer_service.learning.networks.encoders.layers import in_chunks
from trainer_service.learning.networks.encoders.precision import pictures_in
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.rewards import Experience, RewardSource, make_reward_source
from unity_bridge.specs import BehaviorSpec


def make_reward_sources(
    spec: BehaviorSpec, settings: TrainerSettings, device: torch.device, shard: Shard = SINGLE_RANK
) -> list[RewardSource]:
    """Makes the reward sources of the settings, in their order. They encode pictures in single precision."""
    signals = settings.reward_signals.items()
    with pictures_in("float32"):
        return [make_reward_source(name, spec, signal, device, shard) for name, signal in signals]


def names(sources: Sequence[RewardSource]) -> list[str]:
    """Names of the reward sources, for checkpoints."""
    return [source.name for source in sources]


def require_same_signals(sources: Sequence[RewardSource], state: Mapping[str, Any]) -> None:
    """Raises ValueError if a checkpoint has other reward signals, or another order."""
    ours, theirs = names(sources), state["signals"]
    if theirs != ours:
        raise ValueError(f"its reward signals are {', '.join(theirs)}, not {', '.join(ours)}")


def read_demonstrations(
    sources: Sequence[RewardSource], cloning: BehavioralCloning | None, step: int
) -> None:
    """Reads demonstrations that are still used for learning. Raises UserError if they are invalid."""
    stores = [source.demonstrations for source in sources if source.demonstrations is not None]
    if cloning is not None and not cloning.has_faded_out(step):
        stores.append(cloning.demonstrations)
    read_all(stores)


def state_dict(sources: Sequence[RewardSource], cloning: BehavioralCloning | None) -> dict[str, Any]:
    """The state of reward sources and cloning for resuming a run."""
    states = {source.name: source.state_dict() for source in sources}
    return {
        "signals": names(sources),
        "rewards": {name: state for name, state in states.items() if state},
        "cloning": None if cloning is None else cloning.state_dict(),
    }


def load_state_dict(
    sources: Sequence[RewardSource], cloning: BehavioralCloning | None, state: Mapping[str, Any]
) -> None:
    """Restores the state of equal reward signals. Cloning that is not in the state starts from its initial state."""
    known = state["rewards"]
    for source in sources:
        # A reward scale that is not in the state starts from its initial state.
        if source.learns or source.name in known:
            source.load_state_dict(known[source.name])
    if cloning is not None and state["cloning"] is not None:
        cloning.load_state_dict(state["cloning"])


def load_weights(sources: Sequence[RewardSource], state: Mapping[str, Any]) -> None:
    """Loads the weights of reward models by name. A model that is not in the state starts from its initial state."""
    known = state["rewards"]
    for source in sources:
        if source.name in known:
            source.load_weights(known[source.name])


def update(
    sources: Sequence[RewardSource],
    experience: Experience,
    *,
    epochs: int,
    batch_size: int,
    generator: torch.Generator,
    shard: Shard = SINGLE_RANK,
) -> dict[str, float]:
    """Updates reward models with a rollout. Returns means of their statistics."""
    if not sources:
        return {}
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for _ in range(epochs):
        order = torch.randperm(len(experience), generator=generator, device=generator.device)
        for chunk in in_chunks(len(experience), batch_size):
            minibatch = order[chunk]
            part = shard.part(len(minibatch))
            transitions = experience.take(minibatch[part.rows])
            for source in sources:
                for tag, value in source.learn(transitions, part).items():
                    parts[tag].append(value)
    return mean_statistics(parts, shard)


def mean_statistics(parts: Mapping[str, Sequence[Tensor]], shard: Shard) -> dict[str, float]:
    """Returns means of statistics over gradient steps, by tag. parts: this rank's addends of each step."""
    return {tag: float(shard.add_up(torch.stack(list(values)).mean())) for tag, values in parts.items()}
