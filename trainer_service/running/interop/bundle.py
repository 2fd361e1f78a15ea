"""Bundles: a policy's model with a description for programs, and short runners that need neither torch nor us."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import onnx
import torch
from pydantic import BaseModel, ConfigDict

from trainer_service.errors import UserError
from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from trainer_service.running.interop.onnx_export import (
    export_policy,
    input_shapes,
    output_names,
    policies_by_model,
)
from trainer_service.running.policy import Policy
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import BUNDLE_FILES, RunLayout
from unity_bridge.process_guard import plain_torch
from unity_bridge.specs import BehaviorSpec, ObservationSpec

MODEL, DESCRIPTION, *RUNNERS = BUNDLE_FILES
_RUNNER = Path(__file__).with_name("policy_runner")
"""The runners' sources, without the suffix."""
_DRAWING = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_P = TypeVar("_P")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SensorInput(_Part):
    """An observation that the program gives the model."""

    input: str
    """The model's input, float32 [agents, *shape]."""
    name: str
    """The sensor's name in the simulator."""
    role: Literal["observation", "global_state", "team_observations"]
    """observation: of the agent. global_state: for training only, the model ignores its values. team_observations: the
    observations of all agents of the group, agent by agent in the order of their indices; zeros for absent agents."""
    kind: Literal["vector", "picture", "entities", "array"]
    """picture: channels, rows from the top, columns. entities: one row for each entity, zeros for absent ones."""
    shape: tuple[int, ...]
    """The dimensions of one agent's observation."""
    range: tuple[float, float] | None
    """The range of a picture's numbers. null: any number; the model itself normalizes what it was trained to."""
    bytes_per_unit: float | None
    """The divisor of bytes, which make numbers in [0, 1]. null: the sensor has no bytes."""


class AgentIndex(_Part):
    """The index of the agent in its group, one-hot."""

    input: str
    """The model's input, float32 [agents, size]."""
    size: int
    """The number of indices, which count from 0."""


class ActionMasks(_Part):
    """The allowed choices of all branches, side by side: 1 for an allowed choice, 0 for a forbidden one."""

    input: str
    """The model's input, float32 [agents, size]."""
    size: int
    """The number of choices over all branches."""


class Memory(_Part):
    """The memory of an agent, from one decision to the next."""

    input: str
    """The model's input, float32 [agents, *shape]."""
    output: str
    """The model's output that is the input of the agent's next decision."""
    shape: tuple[int, ...]
    """The dimensions of one agent's memory."""
    start: float
    """The value of all its numbers when an episode begins."""


class ContinuousActions(_Part):
    """Continuous actions, float32 [agents, size]."""

    size: int
    """The number of actions."""
    range: tuple[float, float]
    """The range of each action, as simulators take it."""
    greedy: str
    """The model's output with the likeliest actions."""
    drawn: str
    """The model's output with drawn actions."""


class DiscreteActions(_Part):
    """Discrete actions, int64 [agents, branches]: the index of a choice in each branch, from 0."""

    branches: tuple[int, ...]
    """The number of choices in each branch."""
    greedy: str
    """The model's output with the likeliest allowed choices."""
    drawn: str
    """The model's output with drawn allowed choices."""


class PolicyDescription(_Part):
    """The description of a policy's ONNX model: everything that a program needs to act by it."""

    version: Literal[1] = 1
    """The version of this format."""
    behavior: str
    """The policy's behavior name."""
    step: int
    """The number of agent steps that it was trained for."""
    model: str
    """The model's file, in the folder of the description."""
    observations: tuple[SensorInput, ...]
    """The sensors, in the order of the model's inputs."""
    agent_index: AgentIndex | None
    """null: the policy does not distinguish the agents of a group."""
    action_masks: ActionMasks | None
    """null: there are no discrete actions."""
    memory: Memory | None
    """null: the policy has no memory."""
    continuous: ContinuousActions | None
    """null: there are no continuous actions."""
    discrete: DiscreteActions | None
    """null: there are no discrete actions."""
    random_operators: tuple[str, ...]
    """The model's operators that draw actions. They have no seed of their own, so the runtime seeds them: in Python
    onnxruntime.set_seed(seed), before the model is loaded. Empty: nothing is drawn, and both outputs are equal."""


def description_schema() -> dict[str, Any]:
    """The JSON Schema of ``policy.json``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PolicyDescription.model_json_schema(),
    }


def describe(
    behavior: str, step: int, spec: BehaviorSpec, memory_size: int, model: bytes
) -> PolicyDescription:
    """The description of a policy's model. spec: of the model's inputs; memory_size: the network's."""
    shapes, outputs = input_shapes(spec, memory_size), output_names(spec.action_spec, memory_size)
    sensors = list(zip(shapes, spec.observation_specs, strict=False))  # masks and memory are no sensors
    indices = [(name, each) for name, each in sensors if role_of(each) is SensorRole.AGENT_ID]
    own, graph = spec.action_spec, onnx.load_model_from_string(model).graph
    return PolicyDescription(
        behavior=behavior,
        step=step,
        model=MODEL,
        observations=tuple(_sensor(*each) for each in sensors if each not in indices),
        agent_index=next((AgentIndex(input=name, size=each.size) for name, each in indices), None),
        action_masks=_if("action_masks" in shapes, ActionMasks, input="action_masks", size=own.mask_size),
        memory=_if(
            "recurrent_in" in shapes,
            Memory, input="recurrent_in", output="recurrent_out", shape=shapes.get("recurrent_in"), start=0.0,
        ),
        continuous=_if(
            "continuous_actions" in outputs,
            ContinuousActions, size=own.continuous_size, range=(-1.0, 1.0), **_outputs("continuous"),
        ),
        discrete=_if(
            "discrete_actions" in outputs,
            DiscreteActions, branches=own.discrete_branches, **_outputs("discrete"),
        ),
        random_operators=tuple(sorted({node.op_type for node in graph.node} & _DRAWING)),
    )  # fmt: skip


def _if(exists: bool, part: type[_P], **values: Any) -> _P | None:
    return part(**values) if exists else None


def _outputs(kind: str) -> dict[str, str]:
    return {"greedy": f"deterministic_{kind}_actions", "drawn": f"{kind}_actions"}


def _sensor(name: str, sensor: ObservationSpec) -> SensorInput:
    kind = "picture" if sensor.is_picture else "entities" if sensor.is_entities else "array"
    return SensorInput.model_validate(
        {
            "input": name,
            "name": sensor.name,
            "role": role_of(sensor).value,
            "kind": "vector" if len(sensor.shape) == 1 else kind,
            "shape": sensor.shape,
            "range": (0.0, 1.0) if sensor.is_picture else None,
            "bytes_per_unit": 255.0 if len(sensor.shape) == 3 else None,
        }
    )


@plain_torch(torch)
def export_bundles(
    folder: RunFolder, *, step: int | None = None, checkpoint: Path | None = None, target: Path | None = None
) -> dict[Path, Policy]:
    """Writes a bundle of each behavior of a run: the model, its description and the runners.

    Args:
        folder, step, checkpoint: as for ``policies_by_model``.
        target: the folder of the bundles, each in a folder of its behavior's name; None is ``bundle`` in the run's.

    Returns:
        The policies by the folders of their bundles.

    Raises:
        UserError: as for ``policies_by_model``, or the folder holds something else than bundles.
        ExportError, SaveError: see ``export_policy``.
    """
    target = folder.bundle if target is None else target
    _require_bundles(target)
    policies = policies_by_model(folder, step=step, checkpoint=checkpoint).values()
    found = {RunLayout(target).behavior(policy.behavior): policy for policy in policies}
    for place, policy in found.items():
        _write_bundle(place, policy)
    return found


def _write_bundle(place: Path, policy: Policy) -> None:
    network, inputs = policy.network(), policy.inputs

    def beside(model: bytes) -> dict[Path, bytes]:
        about = describe(policy.behavior, policy.step, inputs, network.memory_size, model)
        runners = {place / name: _RUNNER.with_suffix(Path(name).suffix).read_bytes() for name in RUNNERS}
        return {place / DESCRIPTION: f"{about.model_dump_json(indent=2)}\n".encode(), **runners}

    export_policy(network, inputs, place / MODEL, beside=beside)


def _require_bundles(target: Path) -> None:
    """Raises UserError unless a folder is missing, empty or holds bundles; hidden files do not count."""
    if target.exists() and not target.is_dir():
        raise UserError(f"--bundle: '{target}' is a file; expected a folder")
    for entry in sorted(target.iterdir()) if target.exists() else ():
        names = [each.name for each in entry.iterdir()] if entry.is_dir() else [entry.name]
        if DESCRIPTION not in names and not all(name.startswith(".") for name in names):
            raise UserError(
                f"--bundle: '{target}' holds '{entry.name}', which is no bundle; expected a new or empty folder, or "
                "one of bundles"
            )
