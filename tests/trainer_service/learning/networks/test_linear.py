"""Linear layers by oneDNN mean what torch's mean: outputs, gradients and gradients of gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from trainer_service.config.network import Activation
from trainer_service.learning.networks import products
from trainer_service.learning.networks.products import linear, stacked_linear
from unity_bridge.fast_paths import SLOW

SHAPES = [(256, 23, 256), (256, 256, 256), (96, 256, 64), (1224, 128, 128), (1201, 128, 33)]
"""Rows, inputs and outputs: more and fewer inputs than outputs, and numbers of rows that are not round."""


@pytest.fixture(autouse=True)
def chosen_anew() -> Iterator[None]:
    products.onednn.cache_clear()
    yield
    products.onednn.cache_clear()


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes oneDNN's product whatever the processor is."""
    monkeypatch.setattr(products, "_mkl_is_slow", lambda: True)
    if products.onednn() is None:
        pytest.skip("this torch has no product by oneDNN")


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def parts_of(rows: int, inputs: int, outputs: int) -> tuple[Tensor, ...]:
    shapes = (rows, inputs), (outputs, inputs), (outputs,)
    return tuple(drawn(*shape).requires_grad_() for shape in shapes)


def close(found: Tensor, expected: Tensor) -> None:
    scale = float(expected.detach().abs().max())
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-5 * max(scale, 1.0))


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_are_torchs(shape: tuple[int, int, int]) -> None:
    rows, _, outputs = shape
    parts, gradient = parts_of(*shape), drawn(rows, outputs)
    assert products.is_faster(parts[0], parts[1], outputs)
    found, expected = linear(*parts), torch.nn.functional.linear(*parts)
    close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad(found, parts, gradient),
        torch.autograd.grad(expected, parts, gradient),
        strict=True,
    ):
        assert mine.shape == theirs.shape
        close(mine, theirs)
    with torch.no_grad():
        close(linear(*parts), expected)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("columns", [slice(128), slice(1, None), slice(None, None, 2)])
def test_slices_of_weights_reach_onednn_without_gaps(columns: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    """With gaps oneDNN takes its reference implementation, which is hundreds of times slower."""
    multiply, given = products.onednn(), []

    def recorded(rows: Tensor, weight: Tensor, *rest: object) -> Tensor:
        given.append(weight)
        return multiply(rows, weight, *rest)

    monkeypatch.setattr(products, "onednn", lambda: recorded)
    whole = drawn(96, 131)
    features = drawn(256, whole[:, columns].shape[1]).requires_grad_()
    weight = whole[:, columns].requires_grad_()
    outputs = linear(features, weight)
    outputs.sum().backward()  # whose own gradient is one number, expanded
    assert len(given) == 3
    assert all(each.is_contiguous() or each.t().is_contiguous() for each in given)
    close(outputs, features @ weight.t())
    close(features.grad, weight.sum(dim=0).expand_as(features))
    close(weight.grad, features.sum(dim=0).expand_as(weight))


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("activation", ["swish", "relu", "tanh"])
@pytest.mark.parametrize("count", [None, 1, 3])
def test_layers_with_activations_are_torchs(count: int | None, activation: Activation) -> None:
    stack = [] if count is None else [count]
    features = drawn(*stack, 304, 128).requires_grad_()
    weight = (drawn(*stack, 128, 64) / 11.0).requires_grad_()
    bias = drawn(*stack, 1, 64).requires_grad_()
    parts = features, weight, bias

    def found() -> Tensor:
        if count is None:
            return linear(features, weight.t(), bias[0], activation)
        return stacked_linear(*parts, activation)

    def derivatives(outputs: Tensor) -> tuple[Tensor, ...]:
        """Gradients, and gradients of a penalty on one of them."""
        first = torch.autograd.grad(outputs.square().sum(), parts, create_graph=True)
        return (*first, *torch.autograd.grad(first[0].square().mean(), parts))

    expected = products.ACTIVATIONS[activation](features @ weight + bias)
    close(found(), expected)
    for mine, theirs in zip(derivatives(found()), derivatives(expected), strict=True):
        close(mine, theirs)
    with torch.no_grad():
        close(found(), expected)


@pytest.mark.usefixtures("onednn")
def test_what_is_not_a_number_stays_so() -> None:
    features = drawn(256, 128)
    features[3, 5] = float("nan")
    outputs = linear(features, drawn(64, 128), drawn(64), "relu")
    assert torch.equal(outputs.isnan().any(dim=1).nonzero(), torch.tensor([[3]]))


@pytest.mark.usefixtures("onednn")
def test_a_product_is_the_same_wherever_its_factors_lie() -> None:
    # Resuming bit for bit rests on it.
    for rows, inputs, outputs in SHAPES:
        features, weight = drawn(rows, inputs), drawn(outputs, inputs)
        expected, bounded = linear(features, weight), linear(features, weight, None, "tanh")
        for shift in range(1, 16):
            moved = torch.empty(features.numel() + shift)[shift:].view(rows, inputs).copy_(features)
            assert torch.equal(linear(moved, weight), expected)
            assert torch.equal(linear(moved, weight, None, "tanh"), bounded)


@pytest.mark.usefixtures("onednn")
def test_small_products_other_types_and_traces_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight = drawn(256, 64), drawn(64, 64)
    assert products.is_faster(features, weight, 64)
    assert not products.is_faster(features[:64], weight, 64)
    assert not products.is_faster(features.double(), weight.double(), 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert not products.is_faster(features, weight, 64)
    monkeypatch.setattr(torch.jit, "is_tracing", lambda: True)
    assert not products.is_faster(features, weight, 64)


def test_the_switch_of_fast_paths_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_mkl_is_slow", lambda: True)
    monkeypatch.setenv(SLOW, "1")
    assert products.onednn() is None


def test_a_wrong_product_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        @staticmethod
        def default(rows: Tensor, weight: Tensor, *_: object) -> Tensor:
            return rows @ weight.t()  # without the bias

    monkeypatch.setattr(products, "_mkl_is_slow", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", Wrong, raising=False)
    assert products.onednn() is None
    monkeypatch.delattr(torch.ops.mkldnn, "_linear_pointwise")
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    products.onednn.cache_clear()
    assert products.onednn() is None
