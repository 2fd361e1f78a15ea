"""The mapping from the modules of an ML-Agents checkpoint to the state of a learner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer_service.config import PPOSettings, SACSettings, TrainerSettings
from trainer_service.running.interop.mlagents_names import (
    ACTOR,
    CRITIC,
    MOST_AGENTS,
    Q_NETWORKS,
    VALUE_NETWORK,
    TensorLocation,
    actor_location,
    location_of,
    parameter_keys,
    poca_critic_location,
    soft_critics_location,
    statistic_location,
    tensor_keys,
)
from unity_bridge.specs import BehaviorSpec

UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError)
"""Exceptions of values that are not what ML-Agents writes."""


class Optimizer(NamedTuple):
    """An Adam optimizer, by its key in a learner's state and in the file."""

    key: str
    module: str
    numbered: tuple[str, ...]
    """The modules of the file whose parameters it numbers, one after the other."""


@dataclass(frozen=True, slots=True)
class StatePart:
    """A part of a learner's state that the file holds: a network, or the normalizer."""

    key: str
    locate: Callable[[str], TensorLocation | None]
    """Returns the location of a tensor by its name; None for one that the file does not hold."""
    optimizer: Optimizer | None = None
    copy: str | None = None
    """The key of a second part with the same tensors: a target network."""


def parts_of(spec: BehaviorSpec, settings: TrainerSettings) -> list[StatePart]:
    """Returns the parts of a learner of PPO, SAC or POCA that a checkpoint of the same trainer fills."""
    network, signals = settings.network_settings, list(settings.reward_signals)
    normalizer = StatePart("normalizer", statistic_location)
    hyper = settings.hyperparameters
    if isinstance(hyper, PPOSettings):
        modules = (ACTOR,) if hyper.shared_critic else (ACTOR, CRITIC)
        adam = Optimizer("optimizer", "Optimizer:value_optimizer", modules)
        locate = partial(location_of, spec=spec, settings=network, signals=signals)
        if hyper.shared_critic:  # then the critic is the actor once more
            return [StatePart("network", lambda name: locate(name)._replace(module=ACTOR), adam), normalizer]
        return [StatePart("network", locate, adam), normalizer]
    actor = partial(actor_location, spec=spec, settings=network)
    if isinstance(hyper, SACSettings):
        policy = StatePart(
            "actor", actor, Optimizer("actor_optimizer", "Optimizer:policy_optimizer", (ACTOR,))
        )
        critics = StatePart(
            "critics",
            partial(soft_critics_location, spec=spec, settings=network, signals=signals),
            Optimizer("critic_optimizer", "Optimizer:value_optimizer", (Q_NETWORKS, VALUE_NETWORK)),
            copy="target_critics",
        )
        # With memory critics here join the action after the LSTM, those of ML-Agents before it. ML-Agents' critics
        # are not normalized.
        differs = network.memory is not None or hyper.critic_norm != "none"
        return [policy, normalizer] if differs else [policy, critics, normalizer]
    adam = Optimizer("", "Optimizer:adam", (ACTOR, CRITIC))
    return [
        StatePart("actors", lambda name: actor(_of_one_actor(name)), adam._replace(key="actor_optimizer")),
        StatePart(
            "critic",
            partial(poca_critic_location, spec=spec, settings=network, signals=signals),
            adam._replace(key="critic_optimizer"),
        ),
        normalizer,
    ]


def _of_one_actor(name: str) -> str:
    """The name of a tensor of ``GroupActors`` as a single actor has it; actors of one each have no counterpart."""
    return name.removeprefix("each.0.").replace("trunk.", "actor.", 1)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The mapping from tensors of the file to tensors of a learner."""

    modules: Mapping[str, Mapping[str, Any]]
    """Modules of the file."""

    parts: Sequence[StatePart]

    places: Mapping[str, Mapping[str, tuple[TensorLocation, Tensor]]]
    """For each part and tensor its location in the file, and a template of its shape and type."""

    @classmethod
    def of(
        cls, modules: Mapping[str, Mapping[str, Any]], parts: Sequence[StatePart], fresh: Mapping[str, Any]
    ) -> Plan:
        """Plans the parts of a learner. fresh: the state of a new learner, which tells the tensors it needs.

        Raises ValueError where a tensor has no counterpart in ML-Agents.
        """
        places: dict[str, dict[str, tuple[TensorLocation, Tensor]]] = {}
        for part in parts:
            located = {name: (part.locate(name), template) for name, template in fresh[part.key].items()}
            places[part.key] = {
                name: (location, template)
                for name, (location, template) in located.items()
                if location is not None
            }
        return cls(modules, parts, places)

    def mismatches(self) -> Iterator[str]:
        """Yields a description of each mismatch: missing tensors, other shapes, and tensors without a counterpart."""
        used: dict[str, set[str]] = {}
        for location, template in self._tensors():
            used.setdefault(location.module, set()).update(location.keys)
            missing = [
                key for key in location.keys if not isinstance(self._tensor(location.module, key), Tensor)
            ]
            yield from (f"{key} is missing in {location.module}" for key in missing)
            if not missing:
                yield from self._shape_mismatch(location, template)
        for module, known in used.items():
            for key in tensor_keys(self.modules.get(module, {})):
                # Statistics are the same in all modules: they have seen the same trajectories.
                if key not in known and (module == ACTOR or ".normalizer." not in key):
                    yield f"{key} of {module} has no place"

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """Returns networks and normalizer by part, without the tensors that the file does not hold."""
        loaded = {
            key: {
                name: self._joined(location).reshape(template.shape).to(template.dtype)
                for name, (location, template) in tensors.items()
            }
            for key, tensors in self.places.items()
        }
        copies = {part.copy: loaded[part.key] for part in self.parts if part.copy is not None}
        return loaded | copies

    def moments(self, part: StatePart, optimizer: Optimizer) -> dict[str, Any]:
        """Returns Adam's state in the order of a part's parameters. Raises one of UNREADABLE where it is incomplete."""
        numbered = [
            (name, key) for name in optimizer.numbered for key in parameter_keys(self.modules.get(name, {}))
        ]
        number_of = {place: number for number, place in enumerate(numbered)}
        saved = self.modules[optimizer.module]["state"]
        wanted = [
            location for location, _ in self.places[part.key].values() if location.keys != (MOST_AGENTS,)
        ]
        states = {
            (each.module, key): saved.get(number_of[each.module, key]) for each in wanted for key in each.keys
        }
        if any(state is None for state in states.values()):
            raise ValueError("the file does not hold those of every parameter")
        steps = {int(state["step"]) for state in states.values()}
        if len(steps) != 1:
            raise ValueError(f"parameters have taken different numbers of steps, {sorted(steps)}")

        def vector(moment: str) -> Tensor:
            return torch.cat(
                [_joined([shaped(each, key, moment) for key in each.keys], each).flatten() for each in wanted]
            )

        def shaped(location: TensorLocation, key: str, moment: str) -> Tensor:
            found: Tensor = states[location.module, key][moment]
            return found.reshape(self._tensor(location.module, key).shape)

        return {"steps": steps.pop(), "mean": vector("exp_avg"), "square": vector("exp_avg_sq")}

    def _tensors(self) -> Iterator[tuple[TensorLocation, Tensor]]:
        for tensors in self.places.values():
            yield from tensors.values()

    def _tensor(self, module: str, key: str) -> Any:
        return self.modules.get(module, {}).get(key)

    def _joined(self, location: TensorLocation) -> Tensor:
        return _joined([self._tensor(location.module, key) for key in location.keys], location)

    def _shape_mismatch(self, location: TensorLocation, template: Tensor) -> Iterator[str]:
        try:
            shape = tuple(self._joined(location).shape)
        except RuntimeError:  # parts of different widths
            shape = tuple(self._tensor(location.module, location.keys[0]).shape)
        # In ML-Agents the deviations are a row, and a count was made a vector.
        if shape not in (tuple(template.shape), (1, *template.shape)):
            where = f"{' with '.join(location.keys)} of {location.module}"
            yield f"{where} has shape {shape}, expected {tuple(template.shape)}"


def _joined(parts: Sequence[Tensor], location: TensorLocation) -> Tensor:
    """Joins the tensors of one location, see ``TensorLocation``."""
    parts = [part.reshape(1) if part.ndim == 0 else part for part in parts]
    if not location.is_twin:
        return torch.cat(list(parts))
    half = len(parts) // 2
    halves = [torch.cat(list(each)) for each in (parts[:half], parts[half:])]
    return torch.stack([each.t() if each.ndim == 2 else each[None] for each in halves])
