"""A comparison of an ONNX model with its policy, on the same random inputs.

The model is run by onnxruntime where that is installed, otherwise by the evaluator in NumPy that comes with onnx.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from unity_bridge.specs import BehaviorSpec

Arrays = Mapping[str, NDArray[Any]]

TOLERANCE = 1e-3
"""Allowed difference of outputs, relative to max(1, |output|). Engines round differently."""
_ROWS = 3
"""Rows of the random inputs: more than the one that models are traced with."""
_MAX_IN_NUMPY = 200_000
"""Limit of convolutions x rows x pixels that NumPy computes: a tenth of a second or two."""
_SAMPLED = ("continuous_actions", "discrete_actions")

_ONE_AT_A_TIME = threading.RLock()

_logger = logging.getLogger(__name__)


@contextmanager
def no_warnings() -> Iterator[None]:
    """A context without warnings. Threads of several runs wait for each other: the filters are of all threads."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def model_mismatch(
    model: bytes, spec: BehaviorSpec, memory_size: int, policy: Callable[[Arrays], Arrays]
) -> str | None:
    """Describes how a model differs from its policy, as the end of a sentence; None if it does not.

    Raises nothing: a model is not worth a run.

    policy: maps the model's inputs to its outputs, and with discrete actions to masked ``logits``.
    """
    try:
        inputs = random_inputs(spec, memory_size)
        if (reason := _too_slow(model, spec)) is not None:
            _log_once(reason)
            return None
        with np.errstate(all="ignore"), no_warnings():
            found, expected = run_model(model, inputs), policy(inputs)
            return largest_difference(found, expected, policy(inputs), spec.action_spec.discrete_branches)
    except Exception as error:  # whatever the engine at hand raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        return f"could not be compared with its policy: {reason}"


def random_inputs(spec: BehaviorSpec, memory_size: int) -> dict[str, NDArray[np.float32]]:
    """Returns random inputs of a model, from a fixed seed: some entities absent, some choices forbidden, and for the
    index of an agent in its group that of one."""
    rng = np.random.default_rng(1)
    inputs: dict[str, NDArray[Any]] = {}
    for index, sensor in enumerate(spec.observation_specs):
        shape = (_ROWS, *sensor.shape)
        seen = rng.random(shape) if sensor.is_picture else rng.normal(scale=2.0, size=shape)
        if role_of(sensor) is SensorRole.AGENT_ID:
            # Anything but a one is no agent's, and where to look then engines need not agree.
            seen = np.eye(sensor.shape[0])[rng.integers(sensor.shape[0], size=_ROWS)]
        if sensor.is_entities:
            seen[0, sensor.shape[0] // 2 :] = 0.0
            seen[1] = 0.0
        inputs[f"obs_{index}"] = seen
    branches = spec.action_spec.discrete_branches
    if branches:
        allowed = rng.random((_ROWS, sum(branches))) < 0.6
        allowed[:, np.cumsum(branches) - 1] = True
        inputs["action_masks"] = allowed
    if memory_size:
        inputs["recurrent_in"] = rng.uniform(-1.0, 1.0, (_ROWS, 1, memory_size))
    return {name: array.astype(np.float32) for name, array in inputs.items()}


def run_model(model: bytes, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """Runs the model in onnxruntime or NumPy. Raises whatever the engine raises."""
    if not _has_onnxruntime():
        return _run_in_numpy(model, inputs)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # it would start one for each core
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def largest_difference(
    found: Arrays, expected: Arrays, repeated: Arrays, branches: tuple[int, ...]
) -> str | None:
    """Describes the output with the largest error, as ``model_mismatch`` does; None within the tolerance.

    repeated: the policy's outputs in a second run. Outputs that differ are sampled, and not compared.
    """
    worst, where = 0.0, ""
    for name, wanted in expected.items():
        if name in _SAMPLED or name == "logits" or not np.array_equal(wanted, repeated[name], equal_nan=True):
            continue
        if name not in found or found[name].shape != wanted.shape:
            shape = found[name].shape if name in found else "missing"
            return f"has an output '{name}' of shape {shape}, expected {wanted.shape}"
        choices = name == "deterministic_discrete_actions"
        error = _regret(found[name], expected["logits"], branches) if choices else _error(found[name], wanted)
        if not error <= worst:
            worst, where = error, name
    if worst <= TOLERANCE:
        return None
    return (
        f"does not say what its policy says: for random inputs '{where}' differs by {worst:.2g}, "
        f"expected at most {TOLERANCE}"
    )


def _error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Returns the largest difference, relative to max(1, |wanted|)."""
    if np.array_equal(found, wanted, equal_nan=True):
        return 0.0
    wanted = wanted.astype(np.float64)
    return float((np.abs(found - wanted) / np.maximum(np.abs(wanted), 1.0)).max())


def _regret(chosen: NDArray[Any], logits: NDArray[Any], branches: tuple[int, ...]) -> float:
    """Returns how far the chosen logits are below the best: two may be equal except for rounding."""
    worst, start = 0.0, 0
    for branch, size in enumerate(branches):
        part = logits[:, start : start + size]
        best = part.max(axis=1, keepdims=True)
        worst = max(worst, _error(np.take_along_axis(part, chosen[:, branch, None], axis=1), best))
        start += size
    return worst


def _has_onnxruntime() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def _too_slow(model: bytes, spec: BehaviorSpec) -> str | None:
    pictures = sum(math.prod(sensor.shape) for sensor in spec.observation_specs if sensor.is_picture)
    if not pictures or _has_onnxruntime():
        return None
    import onnx

    graph = onnx.load_model_from_string(model).graph
    convolutions = sum(node.op_type == "Conv" for node in graph.node)
    if _ROWS * convolutions * pictures <= _MAX_IN_NUMPY:
        return None
    return "Models with pictures of this size are only compared with their policy where onnxruntime is installed."


@functools.cache
def _log_once(text: str) -> None:
    _logger.info("%s", text)


def _run_in_numpy(model: bytes, inputs: Arrays) -> dict[str, NDArray[Any]]:
    import onnx
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Multinomial(OpRun):
        """The one operator that the evaluator lacks. Its samples are not compared."""

        op_domain = ""

        def _run(self, logits: NDArray[Any], **_: Any) -> tuple[NDArray[np.int64]]:
            return (np.zeros((len(logits), 1), np.int64),)

    evaluator = ReferenceEvaluator(onnx.load_model_from_string(model), new_ops=[Multinomial])
    names = list(evaluator.output_names)
    return dict(zip(names, evaluator.run(names, dict(inputs)), strict=True))
