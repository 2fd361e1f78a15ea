"""Checkpoints of ML-Agents 1.1.0, read without unpickling and converted.

Such a file is a dictionary of state dicts: ``Policy``, ``global_step``, ``Optimizer:…`` and ``Module:…``. It says
neither what the sensors are nor with which settings it was trained, so both must be known from elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_service.config import PPOSettings, TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.networks.size_limit import SizeLimit
from trainer_service.running.interop.mlagents_names import ACTOR, CRITIC, has_own_actor
from trainer_service.running.interop.mlagents_plan import UNREADABLE, Plan, parts_of
from trainer_service.running.runs.checkpoint import Checkpoint, parse_checkpoint, read_content
from unity_bridge.specs import BehaviorSpec

_STEP, _COUNTER = "global_step", "_GlobalSteps__global_step"
_TRAINER_OF: Mapping[str, str] = {
    "Optimizer:q_network": "sac", "Optimizer:adam": "poca", "Optimizer:value_optimizer": "ppo",
}  # fmt: skip
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

    @property
    def trainer(self) -> str | None:
        """The trainer type that wrote the file, by its modules: ppo, sac or poca; None where it is none of them."""
        return next((trainer for module, trainer in _TRAINER_OF.items() if module in self.modules), None)

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
    _require_supported(source, settings, where)
    try:
        with SizeLimit(source.modules):  # an imported run brings its settings along
            learner = make_learner(spec, settings, Compute(torch.device("cpu"), seed))
        # The state of a fresh learner tells which tensors are needed, and replaces those that no file holds.
        fresh = learner.state_dict()
        plan = Plan.of(source.modules, parts_of(spec, settings), fresh)
    except ValueError as error:
        raise UserError(f"behavior '{behavior}': {error}") from None
    _require_fit(plan, where)
    loaded = {key: {**fresh[key], **tensors} for key, tensors in plan.weights().items()}
    moments, left_out = _moments(plan)
    left_out = [*_parts_left_out(source, settings), *left_out]
    state = {**fresh, **loaded, **moments}
    return Conversion(Checkpoint(behavior, source.step, spec, settings, state), tuple(left_out))


def _moments(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Returns the optimizers' states by key, and a message for each state that cannot be taken over."""
    moments: dict[str, Any] = {}
    left_out = []
    for part in plan.parts:
        if part.optimizer is not None:
            try:
                moments[part.optimizer.key] = plan.moments(part, part.optimizer)
            except UNREADABLE as error:
                name, reason = part.optimizer.key.replace("_", " "), " ".join(str(error).split())
                left_out.append(f"the {name}'s moments, which start from scratch: {reason}")
    return moments, left_out


def _parts_left_out(source: MLAgentsCheckpoint, settings: TrainerSettings) -> list[str]:
    left_out = [
        f"{name}, a reward signal's network, which starts from scratch"
        for name in source.modules
        if name.startswith("Module:")
    ]
    if source.trainer == "sac":
        left_out.append("the entropy coefficients, which ML-Agents does not save: they start at init_entcoef")
        if settings.network_settings.memory is not None:
            left_out.append("the critics, whose memory has another structure here: they start from scratch")
    return left_out


def _parse(content: Mapping[str, Any], path: Path) -> MLAgentsCheckpoint:
    try:
        step = int(content[_STEP][_COUNTER])
        if step < 0:
            raise ValueError(f"it has taken {step} steps")
        if _TRAINER_OF.keys().isdisjoint(content) or not all(map(_is_module, content.values())):
            raise ValueError(f"its modules are {list(content)}")
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"'{path}' is not a complete checkpoint of ML-Agents 1.1.0: {reason}") from None
    return MLAgentsCheckpoint(path, step, content)


def _is_module(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(key, str) for key in found)


def _require_supported(source: MLAgentsCheckpoint, settings: TrainerSettings, where: str) -> None:
    hyper = settings.hyperparameters
    if settings.trainer_type != source.trainer:
        raise UserError(
            f"{where} is of the trainer '{source.trainer}', the configuration says '{settings.trainer_type}'"
        )
    _require_same_memory(source, settings, where)
    activation = settings.network_settings.activation
    if activation != "swish":
        raise UserError(f"{where} has networks with swish, the configuration says activation '{activation}'")
    shared = source.trainer == "ppo" and has_own_actor(source.modules.get(CRITIC, {}))
    if isinstance(hyper, PPOSettings) and shared != hyper.shared_critic:
        raise UserError(
            f"{where} was trained with shared_critic {shared}, the configuration says {hyper.shared_critic}"
        )


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


def _require_fit(plan: Plan, where: str) -> None:
    if mismatches := list(plan.mismatches()):
        more = f" and {len(mismatches) - _MAX_NAMED} more" if len(mismatches) > _MAX_NAMED else ""
        raise UserError(
            f"{where} does not fit the behavior and its settings (hidden_units, num_layers, memory, normalize, "
            "vis_encode_type, goal_conditioning_type, shared_critic, reward_signals): "
            f"{'; '.join(mismatches[:_MAX_NAMED])}{more}"
        )
