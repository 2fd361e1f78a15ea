"""Export of policies as ONNX files, with the names, shapes and constants that Unity's ML-Agents packages expect.

Inputs ``obs_0`` …, with discrete actions ``action_masks`` (1 = allowed), and with memory ``recurrent_in``, which
is zeros at an episode's start and ``recurrent_out`` of the step before afterwards. Outputs, in this order, those
of an action kind only where the behavior has it::

    version_number                     float32 [1]            3
    memory_size                        float32 [1]            floats of an agent's memory, 0 without
    continuous_actions                 float32 [batch, size]  drawn inside the graph
    continuous_action_output_shape     float32 [1]            size
    deterministic_continuous_actions   float32 [batch, size]
    discrete_actions                   int64 [batch, branches]
    discrete_action_output_shape       float32 [1, branches]  choices of each branch
    deterministic_discrete_actions     int64 [batch, branches]
    recurrent_out                      float32 [batch, 1, memory_size]   only with memory
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.member_policy import ExportedNetwork
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.random_streams import random_stream
from trainer_service.running.interop.onnx_check import Arrays, model_mismatch, no_warnings
from trainer_service.running.interop.onnx_constants import restore_merged_constants
from trainer_service.running.policy import Policy, checkpoints_of
from trainer_service.running.runs.files import Replacement
from trainer_service.running.runs.folder import RunFolder
from unity_bridge.process_guard import plain_torch
from unity_bridge.specs import ActionSpec, BehaviorSpec

if TYPE_CHECKING:
    import onnx

OPSET = 9
"""Version of the operator set in the files: ML-Agents' own, which its packages are tested with."""
NEWEST_OPSET = 15
"""The newest operator set that the packages' inference engines promise to read."""
MODEL_VERSION = 3.0
"""Unity's ``ModelApiVersion.MLAgents2_0``."""

_LARGE_MODEL = 2**23
"""Bytes of a model from which on its export pauses."""
_PAUSE_S = 0.05
_FORBIDDEN = 1e8
"""Subtracted from a forbidden choice's logit: its probability is zero in single precision."""

_logger = logging.getLogger(__name__)


class ExportError(UserError):
    """A policy that could not be written as a model; its weights are safe."""


def export_policy(
    network: ExportedNetwork,
    spec: BehaviorSpec,
    *paths: Path,
    beside: Callable[[bytes], Mapping[Path, bytes]] = lambda model: {},
) -> None:
    """Writes the model to every path, all replaced atomically. Warns if it differs from the policy.

    beside: the files that belong to a model, which are replaced with it.

    Raises:
        ExportError: onnx is not installed, or the policy cannot be expressed; nothing was written.
        SaveError: a file could not be written.
    """
    try:
        model = to_onnx(network, spec)
    except ImportError as error:
        raise ExportError(f"no model could be written: {error}. Install it with: pip install onnx") from None
    except Exception as error:
        # torch's exporter raises whatever the operator at hand raises. A model that is missing can be
        # written later from the checkpoint; a run that ended over it cannot be saved.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExportError(f"no model could be written: {reason[:300]}") from error
    with Replacement() as files:
        for path, content in {**dict.fromkeys(paths, model), **beside(model)}.items():
            files.write(path, partial(_write, content))
    if difference := model_mismatch(model, spec, network.memory_size, _PolicyOutputs(network, spec)):
        _logger.warning("model '%s' %s", paths[0], difference)


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


@plain_torch(torch)
def export_run(
    folder: RunFolder, *, step: int | None = None, checkpoint: Path | None = None, output: Path | None = None
) -> dict[Path, Policy]:
    """Writes the models of a run's checkpoints.

    Takes ``step`` and ``checkpoint`` as ``policies_by_model`` does.

    Args:
        output: where the models go instead: a file that ends with .onnx, for one behavior, or a folder.

    Returns:
        The policies by the file that each was written to.

    Raises:
        UserError: no such checkpoint, one that is damaged, or several behaviors for one file.
        ExportError, SaveError: see ``export_policy``.
    """
    policies = policies_by_model(folder, step=step, checkpoint=checkpoint)
    if output is not None:
        policies = _redirected(policies, output)
    for target, policy in policies.items():
        export_policy(policy.network(), policy.inputs, target)
    return policies


def policies_by_model(
    folder: RunFolder, *, step: int | None = None, checkpoint: Path | None = None
) -> dict[Path, Policy]:
    """The policies of a run's checkpoints by the places of their models.

    Args:
        folder: the run. Without ``step`` and ``checkpoint`` the newest policy of each of its behaviors becomes
            the run's final model.
        step: the policies of that step instead, each beside its checkpoint.
        checkpoint: that file instead; the model goes into its folder.

    Raises UserError: no such checkpoint, or one that is damaged.
    """
    if checkpoint is not None:
        sources = {checkpoint.with_suffix(".onnx"): checkpoint}
    elif step is not None:
        sources = {path.with_suffix(".onnx"): path for path in _of_step(folder, step)}
    else:
        sources = {folder.final_model(name): path for name, path in checkpoints_of(folder.path).items()}
    policies: dict[Path, Policy] = {}
    for target, source in sources.items():
        group = Policy.load(source)
        for name, policy in group.parts().items():
            policies[target if policy is group else _place_of_member(target, group.behavior, name)] = policy
    return policies


def _place_of_member(target: Path, group: str, member: str) -> Path:
    """``Leader.onnx`` for ``Pursuit.onnx``, ``Leader/Leader-500.onnx`` for ``Pursuit/Pursuit-500.onnx``.

    Beside a file of another name it is called ``NAME-Leader.onnx``.
    """
    name = target.stem
    if name == group:
        return target.with_name(f"{member}.onnx")
    if target.parent.name == group and (name == "best" or name.startswith(f"{group}-")):
        return (
            target.parent.with_name(member)
            / f"{member if name != 'best' else ''}{name.removeprefix(group)}.onnx"
        )
    return target.with_name(f"{name}-{member}.onnx")


def to_onnx(network: ExportedNetwork, spec: BehaviorSpec) -> bytes:
    """Returns the policy as the bytes of a checked ONNX file. Leaves random streams alone, those of other threads too.

    Raises:
        ImportError: onnx is not installed.
        Exception: what torch's exporter or the ONNX checker finds fault with.
    """
    import onnx

    file = io.BytesIO()
    graph = _Graph(network, spec.action_spec).eval()
    inputs = input_shapes(spec, network.memory_size)
    outputs = output_names(spec.action_spec, network.memory_size)
    dynamic = [*inputs, *(name for name in outputs if name.endswith("_actions") or name == "recurrent_out")]
    with no_warnings(), torch.no_grad():  # the exporter is deprecated and warns each time
        torch.onnx.export(
            graph,
            tuple(torch.zeros(1, *shape, dtype=torch.float32) for shape in inputs.values()),
            file,  # type: ignore[arg-type]  # the old exporter takes a file too, whatever the signature says
            input_names=list(inputs),
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in dynamic},
            opset_version=OPSET,
            dynamo=False,  # the new exporter writes newer operators than asked for, and takes seconds
        )
    _let_others_run(file.tell())
    model = onnx.load_model_from_string(file.getvalue())
    _require_opset(model)
    _declare_inputs(model, inputs)
    restore_merged_constants(model.graph)
    _let_others_run(file.tell())
    checked = model.SerializeToString()
    _let_others_run(len(checked))
    onnx.checker.check_model(checked)
    _let_others_run(len(checked))
    return checked


def _let_others_run(size: int) -> None:
    """Pauses between calls that keep other threads waiting, tens of milliseconds each for a model of so many bytes.

    One decision of a run would otherwise meet all of them in turn.
    """
    if size > _LARGE_MODEL:
        time.sleep(_PAUSE_S)


def input_shapes(spec: BehaviorSpec, memory_size: int) -> dict[str, tuple[int, ...]]:
    """Returns the names of a model's inputs, in order, with their shapes without the batch dimension."""
    shapes = {f"obs_{index}": sensor.shape for index, sensor in enumerate(spec.observation_specs)}
    if spec.action_spec.discrete_branches:
        shapes["action_masks"] = (spec.action_spec.mask_size,)
    if memory_size:
        shapes["recurrent_in"] = (1, memory_size)
    return shapes


def output_names(actions: ActionSpec, memory_size: int) -> list[str]:
    """Returns the names of a model's outputs, in order."""
    names = ["version_number", "memory_size"]
    if actions.continuous_size:
        names += ["continuous_actions", "continuous_action_output_shape", "deterministic_continuous_actions"]
    if actions.discrete_branches:
        names += ["discrete_actions", "discrete_action_output_shape", "deterministic_discrete_actions"]
    if memory_size:
        names.append("recurrent_out")
    return names


def _of_step(folder: RunFolder, step: int) -> list[Path]:
    states = [folder.numbered_states(name) for name in folder.saved_behaviors()]
    found = [paths[step] for paths in states if step in paths]
    if not found:
        there = [path.stem for paths in states for path in paths.values()]
        raise UserError(
            f"'{folder.path}' has no checkpoint of step {step}; it has {', '.join(there) or 'none'}"
        )
    return found


def _redirected(policies: dict[Path, Policy], output: Path) -> dict[Path, Policy]:
    if output.suffix != ".onnx":
        return {output / f"{policy.behavior}.onnx": policy for policy in policies.values()}
    if len(policies) > 1:
        names = ", ".join(policy.behavior for policy in policies.values())
        raise UserError(f"--output: '{output}' is one file for the behaviors {names}; expected a folder")
    (policy,) = policies.values()
    return {output: policy}


class _PolicyOutputs:
    """A policy as a function from its model's inputs to the model's outputs."""

    def __init__(self, network: ExportedNetwork, spec: BehaviorSpec) -> None:
        self._graph = _Graph(network, spec.action_spec).eval()
        self._names = output_names(spec.action_spec, network.memory_size)

    def __call__(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        tensors = [torch.from_numpy(array) for array in inputs.values()]
        with torch.no_grad():
            outputs = dict(zip(self._names, self._graph(*tensors), strict=True))
            outputs["logits"] = self._graph.logits(*tensors)
        return {name: output.numpy() for name, output in outputs.items()}


class _OwnDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which random numbers come from a stream of its own.

    Models may be exported beside a run in progress: torch's own stream belongs to all threads. Only for the drawing of
    actions: convolutions and LSTMs are traced as something else in such a context.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stream = random_stream(0)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Lets torch call the method below as it is: a wrapper would load torch's compiler, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            if func is torch.ops.aten.randn_like.default:
                return torch.empty_like(args[0]).normal_(generator=self._stream)
            if func is torch.ops.aten.rand_like.default:
                return torch.empty_like(args[0]).uniform_(generator=self._stream)
            if any(argument.name == "generator" for argument in func._schema.arguments):
                kwargs = {**kwargs, "generator": self._stream}
        return func(*args, **kwargs)


class _Graph(nn.Module):
    """The module that is traced: a policy from a model's inputs to its outputs."""

    version_number: Tensor
    memory_size: Tensor
    continuous_shape: Tensor
    discrete_shape: Tensor

    def __init__(self, network: ExportedNetwork, actions: ActionSpec) -> None:
        super().__init__()
        self.network = network
        self._branches = actions.discrete_branches
        self._continuous = actions.continuous_size > 0
        self._draws = _OwnDraws()
        number = partial(
            torch.tensor, dtype=torch.float32
        )  # whatever hosted code has made the default just now
        self.register_buffer("version_number", number([MODEL_VERSION]))
        self.register_buffer("memory_size", number([network.memory_size]))
        self.register_buffer("continuous_shape", number([actions.continuous_size]))
        self.register_buffer("discrete_shape", number([self._branches]))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        parameters, masks, memories_out = self._run_policy(list(inputs))
        outputs: list[Tensor] = [self.version_number, self.memory_size]
        if self._continuous:
            with self._draws:
                sampled, most_likely = self.network.continuous_actions(parameters)
            outputs += [sampled, self.continuous_shape, most_likely]
        if self._branches:
            with self._draws:
                sampled, most_likely = self._choices(parameters.logits, *masks)
            outputs += [sampled, self.discrete_shape, most_likely]
        return (*outputs, *memories_out)

    def _run_policy(self, inputs: list[Tensor]) -> tuple[ActionParameters, list[Tensor], list[Tensor]]:
        """Returns action parameters, masks and new memories; the latter two lists have at most one entry."""
        size = self.network.memory_size
        memories = [inputs.pop().reshape(-1, size)] if size else []
        masks = [inputs.pop()] if self._branches else []
        if not memories:
            return self.network.forward(inputs), masks, []
        parameters, memories_out = self.network.step(inputs, *memories)
        return parameters, masks, [memories_out.reshape(-1, 1, size)]

    def logits(self, *inputs: Tensor) -> Tensor:
        """Returns the logits of all choices, forbidden ones far below the others. [B, choices]"""
        parameters, masks, _ = self._run_policy(list(inputs))
        return _masked(parameters.logits, *masks)

    def _choices(self, logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        masked = _masked(logits, masks)
        sampled, most_likely, start = [], [], 0
        for size in self._branches:
            chosen = self.network.discrete_actions(masked[:, start : start + size])
            sampled.append(chosen[0])
            most_likely.append(chosen[1])
            start += size
        return _concatenated(sampled), _concatenated(most_likely)


def _masked(logits: Tensor, *masks: Tensor) -> Tensor:
    for allowed in masks:
        # Arithmetic where a condition would be clearer: old inference engines have no Where.
        logits = logits * allowed - _FORBIDDEN * (1.0 - allowed)
    return logits


def _concatenated(columns: Sequence[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else torch.cat(list(columns), dim=-1)


def _declare_inputs(model: onnx.ModelProto, inputs: Mapping[str, tuple[int, ...]]) -> None:
    """Names every input, in order: tracing drops one that influences nothing, and Unity would miss it."""
    import onnx

    declared = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", *shape])
        for name, shape in inputs.items()
    ]
    del model.graph.input[:]
    model.graph.input.extend(declared)


def _require_opset(model: onnx.ModelProto) -> None:
    versions = {each.domain: each.version for each in model.opset_import}
    if versions != {"": OPSET} or OPSET > NEWEST_OPSET:
        raise ValueError(f"the exporter wrote operator sets {versions}; expected version {OPSET} alone")
