"""A device that is simulated: its tensors lie on the CPU, and whatever a GPU would refuse is refused.

Torch's device ``meta`` stands for it, which has no numbers here. Within ``SimulatedDevice`` a tensor made there, or
moved there, wraps one on the CPU. Operations are computed on what is wrapped, so numbers are the CPU's; one that is
given tensors of both devices fails, as it does on a GPU, and so does reading a tensor of the device as an array.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE, CPU = torch.device("meta"), torch.device("cpu")
_aten = torch.ops.aten
_ACROSS = (_aten._to_copy, _aten.to, _aten.copy_)
"""Operations that are there to go from one device to another. Inference mode has ``to`` whole, others its parts."""
_INDEXED = (_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_)
"""Operations of a tensor of the device that take indices of the CPU, too."""
_WAITED_FOR = (_aten.nonzero, _aten.masked_select, _aten._unique2, _aten.item, _aten._local_scalar_dense)
"""Operations whose result, or its size, is a number that the CPU needs."""


class MixedDevicesError(RuntimeError):
    """An operation on tensors of both devices, or on one that holds no numbers."""


class DeviceTensor(Tensor):
    """A tensor of the simulated device."""

    held: Tensor
    """Its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        with torch.inference_mode(False):  # wrappers made in inference mode cannot be viewed
            wrapper: DeviceTensor = Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=DEVICE,
            )
        wrapper.held = held
        return wrapper

    def __init__(self, held: Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _compute(operation, args, kwargs or {})


class SimulatedDevice(TorchDispatchMode):
    """A context in which torch's ``meta`` is a device that computes."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        """How often the CPU had to wait for a number of the device, by the operation."""
        self._properties = _Properties(self.waits)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Lets torch call the method below as it is, not within a wrapper that loads its compiler."""
        return False

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if reason := _wait(operation, args, kwargs):
            self.waits[reason] += 1
        return _compute(operation, args, kwargs)

    def __enter__(self) -> Self:
        self._properties.__enter__()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._properties.__exit__(kind, error, trace)


class _Properties(TorchFunctionMode):
    """What torch does to tensors without an operation."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function == Tensor.data.__set__ and isinstance(args[1], DeviceTensor):  # type: ignore[attr-defined]
            args[0].held = args[1].held
        if function is Tensor.tolist and isinstance(args[0], DeviceTensor):
            self._waits["tolist"] += 1
            return args[0].held.tolist()
        if function is torch.tensor and kwargs.get("device") == DEVICE:
            return torch.tensor(*args, **{**kwargs, "device": CPU}).to(DEVICE)
        return function(*args, **kwargs)


def on_cpu(value: Any) -> Any:
    """A tensor's numbers on the CPU; everything else as it is."""
    return value.held if isinstance(value, DeviceTensor) else value


def _compute(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operation gives, on the device where a GPU would have it."""
    given = [leaf for leaf in _leaves(args, kwargs) if isinstance(leaf, Tensor)]
    _require_one_device(operation, args, given)
    named = [leaf for leaf in _leaves(args, kwargs) if isinstance(leaf, torch.device)]
    target = named[0] if named else DEVICE if any(isinstance(each, DeviceTensor) for each in given) else CPU
    results = operation(*_mapped(_held, args), **{key: _mapped(_held, each) for key, each in kwargs.items()})
    if torch.Tag.inplace_view in operation.tags:
        with no_dispatch():  # the shape that its wrapper tells
            operation(*args, **kwargs)
    known = {id(on_cpu(each)): each for each in given}  # what is written into is still the tensor that it was

    def on_target(result: Any) -> Any:
        there = target == DEVICE
        same = known.get(id(result))
        if same is not None and (operation._schema.is_mutable or isinstance(same, DeviceTensor) == there):
            return same
        return DeviceTensor(result) if isinstance(result, Tensor) and there else result

    return _mapped(on_target, results)


def _require_one_device(operation: Any, args: Sequence[Any], given: Sequence[Tensor]) -> None:
    """Raises MixedDevicesError where a GPU would refuse an operation on these tensors."""
    there = [each for each in given if isinstance(each, DeviceTensor)]
    if any(each.device == DEVICE for each in given if not isinstance(each, DeviceTensor)):
        raise MixedDevicesError(f"{operation}: a tensor of '{DEVICE}' that holds no numbers")
    if not there or operation.overloadpacket in _ACROSS:
        return
    # A single number of the CPU is read wherever torch computes, and written nowhere else.
    allowed = {
        id(each)
        for each in given
        if not each.dim() and not (operation._schema.is_mutable and each is args[0])
    }
    if operation.overloadpacket in _INDEXED and isinstance(args[0], DeviceTensor):
        allowed |= {id(each) for each in _tensors(args[1])}
    if any(id(each) not in allowed for each in given if not isinstance(each, DeviceTensor)):
        shapes = ", ".join(f"{list(each.shape)} on '{each.device}'" for each in given)
        raise MixedDevicesError(f"{operation}: {shapes}")


def _wait(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What the CPU waits for in an operation, None where it does not wait for the device."""
    kind = operation.overloadpacket
    given = [leaf for leaf in _leaves(args, kwargs) if isinstance(leaf, Tensor)]
    if not any(isinstance(each, DeviceTensor) for each in given):
        return None
    if kind in (_aten._to_copy, _aten.to):
        return (
            "copy"
            if any(isinstance(leaf, torch.device) and leaf != DEVICE for leaf in _leaves(args, kwargs))
            else None
        )
    if kind is _aten.copy_:
        return "copy" if not isinstance(args[0], DeviceTensor) else None
    if kind in _INDEXED and any(each.dtype == torch.bool for each in _tensors(args[1])):
        return "mask"
    return kind.__name__ if kind in _WAITED_FOR else None


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of an operation's value, or of all in its lists. torch's own ``tree_map`` takes ten times as long."""
    if isinstance(value, list | tuple):
        return type(value)([_mapped(function, each) for each in value])
    return function(value)


def _leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    _mapped(found.append, [*args, *kwargs.values()])
    return found


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in _leaves([tree], {}) if isinstance(leaf, Tensor)]


def _held(leaf: Any) -> Any:
    if isinstance(leaf, torch.device) and leaf == DEVICE:
        return CPU
    return on_cpu(leaf)
