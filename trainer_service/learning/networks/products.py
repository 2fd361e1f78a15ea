"""Linear layers on a CPU, by torch's product or by oneDNN's if that is faster. Both compute the same.

For float32, torch uses Intel's MKL, which takes 2.2 times as long as necessary on an AMD processor with AVX-512. torch
also includes oneDNN, which is faster if the arithmetic takes longer than its start of 10 µs. The processor and the
shape decide, never a measured time, so two runs of one seed compute the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from trainer_service.config.network import Activation
from unity_bridge.fast_paths import fast_paths_allowed

_LEAST = 1 << 20
"""Multiplications from which oneDNN's product is faster."""

_ROUND = 16
"""Numbers of rows that are multiples of this are round."""

_TOLERANCE = 1e-4

_logger = logging.getLogger(__name__)


ACTIVATIONS: Final[dict[Activation, Callable[[Tensor], Tensor]]] = {
    "swish": functional.silu,
    "relu": torch.relu_,  # in place: sums are new, and the gradient needs only the result
    "tanh": torch.tanh,
}
"""Activations of a body's layers, by their names in ``network_settings``."""


class Linear(nn.Linear):
    """torch's linear layer, computed by ``linear``."""

    def forward(self, features: Tensor) -> Tensor:
        """Maps [..., inputs] to [..., outputs]."""
        return linear(features, self.weight, self.bias)


def linear(
    features: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation | None = None
) -> Tensor:
    """act(x Wᵀ + b), or without an activation x Wᵀ + b: [..., inputs] and [outputs, inputs] to [..., outputs]."""
    if not is_faster(features, weight, weight.shape[0]):
        sums = functional.linear(features, weight, bias)
        return sums if activation is None else ACTIVATIONS[activation](sums)
    rows = features if features.dim() == 2 else features.reshape(-1, features.shape[-1])
    added = _padding(rows.shape[0])
    if added:
        rows = functional.pad(rows, (0, 0, 0, added))
    product = _product(rows, weight, bias, activation)
    if added:
        product = product[:-added]
    return product if features.dim() == 2 else product.view(*features.shape[:-1], -1)


def stacked_linear(
    features: Tensor, weight: Tensor, bias: Tensor, activation: Activation | None = None
) -> Tensor:
    """N layers, each on its own rows: [N, B, inputs] and [N, inputs, outputs] to [N, B, outputs].

    bias: [N, 1, outputs]; activation: as for ``linear``.
    """
    if len(weight) == 1:
        one = features.squeeze(0), weight.squeeze(0).t(), bias.flatten(), activation
        return linear(*one).unsqueeze(0)
    if not is_faster(features[0], weight, weight.shape[2]):
        return activated(torch.baddbmm(bias, features, weight), activation)
    return _product(features, weight.mT, bias, activation)


def activated(sums: Tensor, activation: Activation | None) -> Tensor:
    """Applies the activation to a layer's sums."""
    return sums if activation is None else ACTIVATIONS[activation](sums)


def is_faster(features: Tensor, weight: Tensor, outputs: int) -> bool:
    """Whether oneDNN's products are faster for these features. outputs: width of the layer."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]  # torch has no types here
        return False
    return (
        features.numel() * outputs >= _LEAST
        and features.dtype == weight.dtype == torch.float32
        and features.is_cpu
        and weight.is_cpu
        and not torch.is_autocast_enabled("cpu")
        and onednn() is not None
    )


def _padding(rows: int) -> int:
    """Returns rows to add before a product, since oneDNN takes 0.4 ms to prepare each new number of rows.

    Minibatches have round numbers of rows, which recur. Other numbers, as of groups of one size, are padded to some 16
    values per doubling.
    """
    return -rows % (1 << max(rows.bit_length() - 5, 4)) if rows % _ROUND else 0


def _product(
    left: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation | None = None
) -> Tensor:
    """act(left · weightᵀ + bias), of [m, k] and [n, k] or of N such pairs. Differentiable any number of times."""
    fused = None if activation == "swish" else activation
    if torch.is_grad_enabled():
        product = cast(Tensor, _Product.apply(left, weight, bias, fused))  # type: ignore[no-untyped-call]
    else:
        product = _multiplied(left, weight, bias, fused)
    return product if fused == activation else activated(product, activation)


class _Product(Function):
    """act(left · weightᵀ + bias), with tanh, ReLU or no activation."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None
    ) -> Tensor:
        outputs = _multiplied(left, weight, bias, activation)
        ctx.activation = activation
        ctx.save_for_backward(left, weight, None if activation is None else outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gradient,), (left, weight, outputs) = gradients, ctx.saved_tensors
        to_left, to_weight, to_bias, _ = ctx.needs_input_grad
        if ctx.activation == "tanh":
            gradient = torch.ops.aten.tanh_backward.default(gradient, outputs)
        elif ctx.activation == "relu":
            gradient = torch.ops.aten.threshold_backward.default(gradient, outputs, 0.0)
        of_left = _product(gradient, weight.mT) if to_left else None
        of_bias = gradient.sum(dim=-2, keepdim=gradient.dim() == 3) if to_bias else None
        of_weight = None
        if to_weight:
            # oneDNN is fastest with rows longer than columns. Otherwise the order of the weights is used.
            (columns, rows), turned = weight.shape[-2:], weight.stride(-2) == 1
            if rows < columns or (rows == columns and turned):
                of_weight = _product(left.mT, gradient.mT).mT
            else:
                of_weight = _product(gradient.mT, left.mT)
        return of_left, of_weight, of_bias, None


def _multiplied(left: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> Tensor:
    multiply = cast("Callable[..., Tensor]", onednn())
    # oneDNN's tanh takes a tenth of the time of torch's (MKL). Other activations gain nothing, and its ReLU hides NaN.
    fused = "tanh" if activation == "tanh" else "none"
    if left.dim() == 2:
        product = multiply(left, _dense(weight), bias, fused, [], "")
    else:
        biases = [None] * len(left) if bias is None else list(bias.squeeze(1))
        product = left.new_empty((*left.shape[:2], weight.shape[1]))
        for n, each in enumerate(product):
            each.copy_(multiply(left[n], _dense(weight[n]), biases[n], fused, [], ""))
    return product.relu_() if activation == "relu" else product


def _dense(matrix: Tensor) -> Tensor:
    """The matrix without gaps between its rows or columns.

    oneDNN takes the weights of a part of a wider layer as they lie, by a loop that is 500 times slower.
    """
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


@cache
def onednn() -> Callable[..., Tensor] | None:
    """oneDNN's x Wᵀ + b; None if it is slower, missing or wrong."""
    # torch does not guarantee this operator for later releases, so it is looked up and tried once.
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if operator is None or not (_mkl_is_slow() and fast_paths_allowed()):
        return None
    multiply: Callable[..., Tensor] = operator.default
    rows = torch.sin(torch.arange(64.0 * 64.0)).view(64, 64)
    try:
        sums, tanhs = (multiply(rows, rows, rows[0], name, [], "") for name in ("none", "tanh"))
    except (RuntimeError, TypeError) as error:
        _logger.info("No products by oneDNN: %s", error)
        return None
    expected = functional.linear(rows, rows, rows[0])
    pairs = (sums, expected), (tanhs, expected.tanh())
    return multiply if all(torch.allclose(*pair, atol=_TOLERANCE) for pair in pairs) else None


def _mkl_is_slow() -> bool:
    """Whether torch uses MKL on an AMD processor with AVX-512."""
    processor: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    amd = str(processor.get("cpu_name")).startswith("AMD") and bool(processor.get("avx512_f"))
    return amd and bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]  # torch has no types here
