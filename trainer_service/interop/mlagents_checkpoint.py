"""Checkpoints of ML-Agents 1.1.0, read without unpickling and converted.

Such a file is a dictionary of state dicts: ``Policy``, ``global_step``, ``Optimizer:…`` and ``Module:…``. It says
neither what the sensors are nor with which settings it was trained, so both must be known from elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_service.algorithms import Compute, make_learner
from trainer_service.config import PPOSettings, TrainerSettings
from trainer_service.errors import UserError
from trainer_service.interop.mlagents_names import (
    ACTOR,
    CRITIC,
    TensorLocation,
    has_own_actor,
    location_of,
    parameter_keys,
    statistic_location,
    tensor_keys,
)
from trainer_service.networks.size_limit import SizeLimit
from trainer_service.runs.checkpoint import Checkpoint, parse_checkpoint, read_content
from unity_bridge.specs import BehaviorSpec

_STEP, _COUNTER = "global_step", "_GlobalSteps__global_step"
_ADAM = "Optimizer:value_optimizer"
_TRAINER_OF: Mapping[str, str] = {"Optimizer:q_network": "sac", "Optimizer:adam": "poca", _ADAM: "ppo"}
"""The trainer that wrote a file, by the module that tells. SAC's files have PPO's optimizer too, so SAC comes first."""
_MAX_NAMED = 6
"""Limit of the tensors that an error message names."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class MLAgentsCheckpoint:
    """A checkpoint file of ML-Agents."""

    path: Path
    step: int
    modules: Mapping[str, Mapping[str, Any]]
    """State dicts of the policy, the critic, the optimizer …"""

    def converted(
        self, behavior: str, spec: BehaviorSpec, settings: TrainerSettings, *, seed: int
    ) -> Checkpoint:
        """The checkpoint in our form, see ``convert_checkpoint``. Warns of parts that are left out."""
        conversion = convert_checkpoint(self, behavior, spec, settings, seed=seed)
        for part in conversion.left_out:
            _logger.warning("'%s': not taken over from ML-Agents: %s.", behavior, part)
        return conversion.checkpoint


@dataclass(frozen=True, slots=True, eq=False)
class Conversion:
    """A converted checkpoint, and the parts of the file that were left out, in words."""

    checkpoint: Checkpoint
    left_out: tuple[str, ...] = ()


SourceCheckpoint = Checkpoint | MLAgentsCheckpoint
"""A checkpoint that a run can start from."""


def load_source(path: Path) -> SourceCheckpoint:
    """Reads a checkpoint of this trainer or of ML-Agents onto the CPU.

    Raises:
        UserError: the file is missing, damaged, or neither; or by a trainer of ML-Agents that cannot be read.
    """
    content = read_content(path)
    return _parse(content, path) if is_mlagents(content) else parse_checkpoint(content, path)


def load_mlagents_checkpoint(path: Path) -> MLAgentsCheckpoint:
    """Reads a ``.pt`` of ML-Agents onto the CPU. Executes nothing of the file.

    Raises:
        UserError: the file is missing or damaged, not by ML-Agents, or by a trainer of it that cannot be read.
    """
    content = read_content(path)
    if not is_mlagents(content):
        raise UserError(f"'{path}' is not a checkpoint of ML-Agents: it has no modules {ACTOR} and {_STEP}")
    return _parse(content, path)


def is_mlagents(content: Any) -> bool:
    """Whether ML-Agents wrote this content of a file."""
    return isinstance(content, dict) and ACTOR in content and _STEP in content


def convert_checkpoint(
    source: SourceCheckpoint, behavior: str, spec: BehaviorSpec, settings: TrainerSettings, *, seed: int
) -> Conversion:
    """Converts a checkpoint for a behavior with known sensors and settings.

    ``seed`` starts the random streams of a converted checkpoint; ML-Agents saves none.

    Raises:
        UserError: the file is of other sensors, actions or settings.
    """
    if isinstance(source, Checkpoint):
        return Conversion(source)
    where = f"behavior '{behavior}': '{source.path}'"
    hyper = _require_supported(source, settings, where)
    try:
        with SizeLimit(source.modules):  # an imported run brings its settings along
            algorithm = make_learner(spec, settings, Compute(torch.device("cpu"), seed))
    except ValueError as error:
        raise UserError(f"behavior '{behavior}': {error}") from None
    # The state of a fresh algorithm tells which tensors are needed, and replaces those that no file holds.
    fresh = algorithm.state_dict()
    plan = _Plan.of(source, spec, settings, fresh, shared_critic=hyper.shared_critic)
    _require_fit(plan, where)
    state = {**fresh, **plan.weights()}
    left_out = [
        f"{name}, a reward signal's network, which starts anew"
        for name in source.modules
        if name.startswith("Module:")
    ]
    try:
        state["optimizer"] = plan.moments(source.modules[_ADAM])
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        left_out.append(f"the optimizer's moments, which start anew: {' '.join(str(error).split())}")
    return Conversion(Checkpoint(behavior, source.step, spec, settings, state), tuple(left_out))


def _parse(content: Mapping[str, Any], path: Path) -> MLAgentsCheckpoint:
    written_by = next((trainer for module, trainer in _TRAINER_OF.items() if module in content), None)
    if written_by not in (None, "ppo"):
        raise UserError(
            f"'{path}' was written by the trainer '{written_by}' of ML-Agents; only those of 'ppo' can be read so far"
        )
    try:
        step = int(content[_STEP][_COUNTER])
        if step < 0:
            raise ValueError(f"it has taken {step} steps")
        if written_by is None or not all(map(_is_module, content.values())):
            raise ValueError(f"its modules are {list(content)}")
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"'{path}' is not a complete checkpoint of ML-Agents 1.1.0: {reason}") from None
    return MLAgentsCheckpoint(path, step, content)


def _is_module(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(key, str) for key in found)


def _require_supported(source: MLAgentsCheckpoint, settings: TrainerSettings, where: str) -> PPOSettings:
    hyper = settings.hyperparameters
    if not isinstance(hyper, PPOSettings):
        raise UserError(f"{where} is of the trainer 'ppo', the configuration says '{settings.trainer_type}'")
    _require_same_memory(source, settings, where)
    activation = settings.network_settings.activation
    if activation != "swish":
        raise UserError(f"{where} has networks with swish, the configuration says activation '{activation}'")
    shared = has_own_actor(source.modules.get(CRITIC, {}))
    if shared != hyper.shared_critic:
        raise UserError(
            f"{where} was trained with shared_critic {shared}, the configuration says {hyper.shared_critic}"
        )
    return hyper


def _require_same_memory(source: MLAgentsCheckpoint, settings: TrainerSettings, where: str) -> None:
    stored = source.modules[ACTOR].get("memory_size_vector")
    memory_size = stored.max().nan_to_num().item() if isinstance(stored, Tensor) and stored.numel() else 0
    memory = settings.network_settings.memory
    if memory_size != (0 if memory is None else memory.memory_size):
        configured = "has none" if memory is None else f"says {memory.memory_size}"
        raise UserError(
            f"{where} was trained with a memory_size of {memory_size:g}, the configuration {configured}"
        )
    if memory is not None and memory.type != "lstm":
        raise UserError(f"{where} remembers with an lstm, the configuration says memory.type '{memory.type}'")


def _require_fit(plan: _Plan, where: str) -> None:
    if mismatches := list(plan.mismatches()):
        more = f" and {len(mismatches) - _MAX_NAMED} more" if len(mismatches) > _MAX_NAMED else ""
        raise UserError(
            f"{where} does not fit the behavior and its settings (hidden_units, num_layers, memory, normalize, "
            "vis_encode_type, goal_conditioning_type, shared_critic, reward_signals): "
            f"{'; '.join(mismatches[:_MAX_NAMED])}{more}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The mapping from tensors of the file to tensors of an algorithm."""

    modules: Mapping[str, Mapping[str, Any]]
    """Modules of the file: the policy and, unless it is shared, the critic."""

    parts: Mapping[str, Mapping[str, tuple[TensorLocation, Tensor]]]
    """Parts of an algorithm's state, ``network`` in the order of its parameters and ``normalizer``: for each tensor its
    location in the file, and a template of its shape and type."""

    @classmethod
    def of(
        cls,
        source: MLAgentsCheckpoint,
        spec: BehaviorSpec,
        settings: TrainerSettings,
        fresh: Mapping[str, Any],
        *,
        shared_critic: bool,
    ) -> _Plan:
        """fresh: the state of a new algorithm for that spec and these settings."""
        network, signals = settings.network_settings, list(settings.reward_signals)
        parts = {
            "network": {
                name: (location_of(name, spec, network, signals), template)
                for name, template in fresh["network"].items()
            },
            "normalizer": {
                name: (statistic_location(name), template) for name, template in fresh["normalizer"].items()
            },
        }
        if shared_critic:  # then the critic is the actor once more
            parts = {
                part: {
                    name: (location._replace(module=ACTOR), template)
                    for name, (location, template) in tensors.items()
                }
                for part, tensors in parts.items()
            }
        used = [ACTOR] if shared_critic else [ACTOR, CRITIC]
        return cls({name: source.modules.get(name, {}) for name in used}, parts)

    def mismatches(self) -> Iterator[str]:
        """Yields what does not fit, in words: tensors that are missing, of another shape, or without a counterpart."""
        used: dict[str, set[str]] = {name: set() for name in self.modules}
        for location, template in self._tensors():
            used[location.module].update(location.keys)
            missing = [
                key for key in location.keys if not isinstance(self._tensor(location.module, key), Tensor)
            ]
            yield from (f"{key} is missing in {location.module}" for key in missing)
            if not missing:
                yield from self._shape_mismatch(location, template)
        for module, tensors in self.modules.items():
            # Statistics are the same in both: they have seen the same trajectories.
            known = used[module] | used[ACTOR]
            yield from (f"{key} of {module} has no place" for key in tensor_keys(tensors) if key not in known)

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """Returns network and normalizer, as an algorithm loads them."""
        return {
            part: {
                name: self._concatenated(location).reshape(template.shape).to(template.dtype)
                for name, (location, template) in tensors.items()
            }
            for part, tensors in self.parts.items()
        }

    def moments(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Returns Adam's state in the order of an algorithm's parameters.

        Raises AttributeError, KeyError, TypeError, ValueError or RuntimeError where a parameter has none.
        """
        places = [
            (module, key) for module, tensors in self.modules.items() for key in parameter_keys(tensors)
        ]
        number_of = {place: number for number, place in enumerate(places)}
        wanted = [
            (location.module, key) for location, _ in self.parts["network"].values() for key in location.keys
        ]
        entries = [(self._tensor(*place), optimizer["state"].get(number_of[place])) for place in wanted]
        if any(entry is None for _, entry in entries):
            raise ValueError("the file does not hold those of every parameter")
        steps = {int(entry["step"]) for _, entry in entries}
        if len(steps) != 1:
            raise ValueError(f"parameters have taken different numbers of steps, {sorted(steps)}")
        mean, square = (
            torch.cat([entry[moment].reshape(tensor.shape).flatten() for tensor, entry in entries])
            for moment in ("exp_avg", "exp_avg_sq")
        )
        return {"steps": steps.pop(), "mean": mean, "square": square}

    def _tensors(self) -> Iterator[tuple[TensorLocation, Tensor]]:
        for tensors in self.parts.values():
            yield from tensors.values()

    def _tensor(self, module: str, key: str) -> Any:
        return self.modules[module].get(key)

    def _concatenated(self, location: TensorLocation) -> Tensor:
        parts = [self._tensor(location.module, key) for key in location.keys]
        return torch.cat([part.reshape(1) if part.ndim == 0 else part for part in parts])

    def _shape_mismatch(self, location: TensorLocation, template: Tensor) -> Iterator[str]:
        try:
            shape = tuple(self._concatenated(location).shape)
        except RuntimeError:  # parts of different widths
            shape = tuple(self._tensor(location.module, location.keys[0]).shape)
        # In ML-Agents the deviations are a row, and a count was made a vector above.
        if shape not in (tuple(template.shape), (1, *template.shape)):
            where = f"{' with '.join(location.keys)} of {location.module}"
            yield f"{where} has shape {shape}, expected {tuple(template.shape)}"
