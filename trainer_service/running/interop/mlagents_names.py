"""ML-Agents' names of the networks' tensors, in the modules that its checkpoints consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainer_service.config.network import NetworkSettings
from unity_bridge.specs import BehaviorSpec

ACTOR = "Policy"
CRITIC = "Optimizer:critic"
"""The critic's module; with a shared critic it holds the actor once more."""
Q_NETWORKS, VALUE_NETWORK = "Optimizer:q_network", "Optimizer:value_network"
"""The modules of SAC's two critics and of its state value."""

_BODY = "network_body."
_PROCESSORS = f"{_BODY}observation_encoder.processors."
_DUPLICATES = f"{_BODY}processors."
_Q_NETWORKS = ("q1_network.", "q2_network.")
MOST_AGENTS = f"{_BODY}_current_max_agents"
"""The key of POCA's counter of agents: a parameter to ML-Agents, but not a learned one."""
_CONSTANTS = frozenset({
    "version_number", "is_continuous_int_deprecated", "continuous_act_size_vector", "discrete_act_size_vector",
    "act_size_vector_deprecated", "memory_size_vector",
})  # fmt: skip
_STATISTICS: Mapping[str, str] = {
    "rows": "normalization_steps",
    "mean": "running_mean",
    "sum_squares": "running_variance",  # a sum of squares in ML-Agents too, whatever its name
}
_ATTENTION: Mapping[str, str] = {"query": "fc_q", "key": "fc_k", "value": "fc_v", "output": "fc_out"}
_RESNET_STACK = 4
"""Layers of each stack in ML-Agents: a convolution, a maximum, two residual blocks."""


class TensorLocation(NamedTuple):
    """The location of a tensor: one key, or several that are concatenated along dimension 0."""

    module: str
    keys: tuple[str, ...]
    is_twin: bool = False
    """Whether the two halves of the keys are of two networks, whose transposed tensors are stacked here."""


def location_of(
    name: str, spec: BehaviorSpec, settings: NetworkSettings, signals: Sequence[str]
) -> TensorLocation:
    """Returns the location of the tensor that ``ActorCritic.state_dict`` calls ``name``.

    signals: the reward signals, in the order of their value heads.
    """
    part, _, rest = name.partition(".")
    if part == "value":
        return TensorLocation(CRITIC, _value_heads(rest, signals))
    if part == "critic":
        return TensorLocation(CRITIC, (_BODY + _trunk_key(rest, spec, settings),))
    return actor_location(name, spec, settings)


def actor_location(name: str, spec: BehaviorSpec, settings: NetworkSettings) -> TensorLocation:
    """Returns the location of a policy's tensor: ``actor.…`` of its trunk, ``actions.…`` of its heads."""
    part, _, rest = name.partition(".")
    kind = name.rpartition(".")[2]
    if part == "actor":
        return TensorLocation(ACTOR, (_BODY + _trunk_key(rest, spec, settings),))
    continuous = "action_model._continuous_distribution."
    if rest == "log_sigma":
        return TensorLocation(ACTOR, (f"{continuous}log_sigma",))
    if rest.startswith(("mean.", "log_sigma.")):
        head = "mu" if rest.startswith("mean.") else "log_sigma"
        return TensorLocation(ACTOR, (f"{continuous}{head}.{kind}",))
    branches = range(spec.action_spec.discrete_size)
    return TensorLocation(
        ACTOR, tuple(f"action_model._discrete_distribution.branches.{k}.{kind}" for k in branches)
    )


def soft_critics_location(
    name: str, spec: BehaviorSpec, settings: NetworkSettings, signals: Sequence[str]
) -> TensorLocation:
    """Returns the location of the tensor that ``SoftCritics.state_dict`` calls ``name``, without memory."""
    match name.split("."):
        case ["q", kind]:
            return _twin(_value_heads(kind, signals))
        case ["body", layer, kind]:
            return _twin((f"{_BODY}_body_endoder.seq_layers.{2 * int(layer)}.{kind}",))
        case [("encoders" | "body") as part, critic, *rest]:
            trunk = ".".join([part.removesuffix("s"), *rest])
            prefix = _Q_NETWORKS[int(critic)] + _BODY
            return TensorLocation(Q_NETWORKS, (prefix + _trunk_key(trunk, spec, settings),))
    raise ValueError(f"tensor '{name}' has no counterpart in ML-Agents")


def poca_critic_location(
    name: str, spec: BehaviorSpec, settings: NetworkSettings, signals: Sequence[str]
) -> TensorLocation | None:
    """Returns the location of the tensor that ``POCACritic.state_dict`` calls ``name``; None for unused statistics."""
    match name.split("."):
        case ["most"]:
            key = MOST_AGENTS
        case ["value", "linear", kind]:
            return TensorLocation(CRITIC, _value_heads(kind, signals))
        case ["value", _]:
            return None
        case [("seen" | "seen_acting") as layer, kind]:
            encoder = "obs_encoder" if layer == "seen" else "obs_action_encoder"
            key = f"{_BODY}{encoder}.self_ent_encoder.seq_layers.0.{kind}"
        case [("query" | "key" | "mix" | "output") as layer, kind]:
            key = f"{_BODY}self_attn.{_ATTENTION['value' if layer == 'mix' else layer]}.{kind}"
        case ["body", "layers", number, kind]:
            key = f"{_BODY}linear_encoder.seq_layers.{2 * int(number)}.{kind}"
        case _:
            key = _BODY + _trunk_key(name, spec, settings)
    return TensorLocation(CRITIC, (key,))


def _twin(keys: tuple[str, ...]) -> TensorLocation:
    return TensorLocation(Q_NETWORKS, tuple(prefix + key for prefix in _Q_NETWORKS for key in keys), True)


def _value_heads(kind: str, signals: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"value_heads.value_heads.{signal}.{kind}" for signal in signals)


def statistic_location(name: str) -> TensorLocation:
    """Returns the location of the statistic that ``ObservationNormalizer.state_dict`` calls ``name``."""
    _, sensor, statistic = name.split(".")
    return TensorLocation(ACTOR, (f"{_PROCESSORS}{sensor}.normalizer.{_STATISTICS[statistic]}",))


def tensor_keys(module: Mapping[str, object]) -> list[str]:
    """Returns the keys of a module's learned tensors: no constants, and each tensor once."""
    return [key for key in module if key not in _CONSTANTS and _DUPLICATES not in key]


def parameter_keys(module: Mapping[str, object]) -> list[str]:
    """Returns the keys of a module's parameters, constants included, in the order of its ``parameters()``."""
    return [key for key in module if ".normalizer." not in key and _DUPLICATES not in key]


def has_own_actor(critic: Mapping[str, object]) -> bool:
    """Whether a critic's module holds the whole actor, as a shared critic's does."""
    return not _CONSTANTS.isdisjoint(critic)


def _trunk_key(name: str, spec: BehaviorSpec, settings: NetworkSettings) -> str:
    encoder, goal_layer = "observation_encoder.", 2 * (settings.num_layers - 1)
    match name.split("."):
        case ["body", "layers", layer, kind]:
            return f"_body_endoder.seq_layers.{2 * int(layer)}.{kind}"
        case ["body", "ordinary", "layers", layer, kind]:
            return f"_body_endoder.layers.{2 * int(layer)}.{kind}"
        case ["body", "generated", "hidden", "layers", layer, kind]:
            return f"_body_endoder.layers.{goal_layer}.hypernet.{2 * int(layer)}.{kind}"
        case ["body", "generated", "weights", kind]:
            return f"_body_endoder.layers.{goal_layer}.hypernet.5.{kind}"
        case ["body", "generated", "bias"]:
            return f"_body_endoder.layers.{goal_layer}.bias"
        case ["memory", "lstm", tensor]:
            return f"lstm.lstm.{tensor}"
        case ["encoder", "attention", "own", kind]:
            return f"{encoder}x_self_encoder.seq_layers.0.{kind}"
        case ["encoder", "attention", "embeddings", entities, kind]:
            sensor = _entity_sensors(spec)[int(entities)]
            return f"{encoder}processors.{sensor}.self_ent_encoder.seq_layers.0.{kind}"
        case ["encoder", "attention", projection, kind]:
            return f"{encoder}rsa.{_ATTENTION[projection]}.{kind}"
        case ["encoder", "sensors", sensor, *layer]:
            key = _picture_key(layer, resnet=settings.vis_encode_type == "resnet")
            return f"{encoder}processors.{sensor}.{key}"
    raise ValueError(f"tensor '{name}' has no counterpart in ML-Agents")


def _picture_key(layer: list[str], *, resnet: bool) -> str:
    """The key of an encoder of pictures."""
    match layer:
        case ["convolutions", number, kind]:
            stack = _RESNET_STACK * int(number)
            return f"sequential.{stack}.{kind}" if resnet else f"conv_layers.{2 * int(number)}.{kind}"
        case ["blocks", number, half, kind] if resnet:
            in_stack, block = divmod(int(number), 2)
            position = {"first": 1, "second": 3}[half]
            return f"sequential.{_RESNET_STACK * in_stack + 2 + block}.layers.{position}.{kind}"
        case ["dense", kind]:
            return f"dense.{kind}" if resnet else f"dense.0.{kind}"
    raise ValueError(f"layer '{'.'.join(layer)}' has no counterpart in ML-Agents")


def _entity_sensors(spec: BehaviorSpec) -> list[int]:
    return [index for index, sensor in enumerate(spec.observation_specs) if sensor.is_entities]
