"""Bodies with a last layer that the goal writes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer_service.learning.networks.encoders import goals
from trainer_service.learning.networks.encoders.goals import ConditionalBody, GeneratedLinear


def test_a_generated_layer_by_hand() -> None:
    layer = GeneratedLinear(2, 3, goal=1, hidden_units=2)
    with torch.no_grad():
        for part in layer.hidden.layers:
            part.weight.zero_()
            part.bias.copy_(torch.tensor([0.0, 5.0]))
        # Whatever the goal, the hidden features are (0, ~5), which standardized are (−1, 1). Column 0 of the
        # generator counts −1 times, column 1 once: weights = (column 1 − column 0) + biases.
        layer.weights.weight.copy_(torch.tensor([[0, 1], [0, 2], [0, 3], [1, 5], [1, 6], [1, 7]]))
        layer.weights.bias.copy_(torch.tensor([0.0, 0, 0, 0, 0, 10]))
        layer.bias.copy_(torch.tensor([0.5, 0.0, 0.0]))
    #  weights, inputs × outputs: [[1, 2, 3], [4, 5, 16]]
    product = layer(torch.tensor([[1.0, 0.0], [1.0, 10.0]]), torch.zeros(2, 1))
    torch.testing.assert_close(product, torch.tensor([[1.5, 2, 3], [41.5, 52, 163]]), rtol=1e-5, atol=1e-4)


def test_a_goal_that_many_share_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    layer = GeneratedLinear(6, 4, goal=3, hidden_units=16)
    goals, features = torch.eye(3)[torch.randint(0, 3, (40,))], torch.randn(40, 6)
    worked_out, weights = [], layer._weights
    monkeypatch.setattr(layer, "_weights", lambda goals: worked_out.append(len(goals)) or weights(goals))
    gradients, products = [], []
    for given in (goals, goals.clone().requires_grad_()):  # with gradients of their own they are never merged
        layer.zero_grad()
        products.append(layer(features, given))
        products[-1].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    assert worked_out == [3, 40]
    torch.testing.assert_close(products[0], products[1])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)


def test_the_goal_is_some_columns_of_the_features() -> None:
    torch.manual_seed(3)
    body = ConditionalBody(7, 8, 1, [slice(1, 3), slice(6, 7)])
    features = torch.randn(4, 7)
    expected = nn.functional.silu(body.generated(features, features[:, [1, 2, 6]]))
    torch.testing.assert_close(body(features), expected)


def test_encoded_goals_get_a_gradient_and_raw_ones_none() -> None:
    torch.manual_seed(6)
    features = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    for seen in (False, True):
        body = ConditionalBody(4, 3, 1, [slice(1, 3)], seen=seen).double()
        assert torch.autograd.gradcheck(body, features, raise_exception=False) != seen


def test_an_export_in_another_thread_changes_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)  # true for all threads
    assert goals._comparable(torch.zeros(2, 1))
