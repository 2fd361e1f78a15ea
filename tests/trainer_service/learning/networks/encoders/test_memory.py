"""Recurrent layers against their formulas, step by step and over sequences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trainer_service.config.network import MemorySettings
from trainer_service.learning.networks.encoders.memory import GRU, LSTM, Memory, make_memory

INPUTS = 3
kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])


def layer(kind: str, size: int = 6, seed: int = 1) -> Memory:
    torch.manual_seed(seed)
    memory = make_memory(INPUTS, MemorySettings(type=kind, memory_size=size))
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return memory


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def test_a_step_of_an_lstm_by_hand() -> None:
    # One input, one hidden unit; gates in the order input, forget, candidate, output.
    lstm = LSTM(1, 2)
    for name, numbers in {
        "weight_ih_l0": [[0.5], [-1.0], [2.0], [1.0]],
        "weight_hh_l0": [[0.1], [0.2], [-0.3], [0.4]],
        "bias_ih_l0": [0.0, 1.0, 0.0, 0.0],
        "bias_hh_l0": [0.25, 1.0, 0.0, -0.5],
    }.items():
        getattr(lstm.lstm, name).data.copy_(torch.tensor(numbers))
    x, h, c = 0.8, 0.5, -2.0
    input_gate, forget_gate = sigmoid(0.4 + 0.05 + 0.25), sigmoid(-0.8 + 0.1 + 2.0)
    candidate, output_gate = math.tanh(1.6 - 0.15), sigmoid(0.8 + 0.2 - 0.5)
    cell = forget_gate * c + input_gate * candidate
    hidden = output_gate * math.tanh(cell)
    output, memories = lstm.step(torch.tensor([[x]]), torch.tensor([[h, c]]))
    assert output.tolist() == [[pytest.approx(hidden, abs=1e-6)]]
    assert memories[0].tolist() == pytest.approx([hidden, cell], abs=1e-6)


def test_a_step_of_a_gru_by_hand() -> None:
    # Gates in the order reset, update, candidate; the candidate's own bias is inside what is reset.
    gru = GRU(1, 1)
    for name, numbers in {
        "weight_ih_l0": [[0.5], [-1.0], [2.0]],
        "weight_hh_l0": [[0.1], [0.2], [-0.3]],
        "bias_ih_l0": [0.0, 1.0, 0.1],
        "bias_hh_l0": [0.25, 1.0, 0.7],
    }.items():
        getattr(gru.gru, name).data.copy_(torch.tensor(numbers))
    x, h = 0.8, 0.5
    reset, update = sigmoid(0.4 + 0.05 + 0.25), sigmoid(-0.8 + 0.1 + 2.0)
    candidate = math.tanh(1.6 + 0.1 + reset * (-0.15 + 0.7))
    hidden = (1 - update) * candidate + update * h
    output, memories = gru.step(torch.tensor([[x]]), torch.tensor([[h]]))
    assert output.tolist() == memories.tolist() == [[pytest.approx(hidden, abs=1e-6)]]


@kinds
def test_a_scan_is_its_steps_one_after_the_other(kind: str) -> None:
    memory = layer(kind)
    features, memories = torch.randn(4, 7, INPUTS), torch.randn(4, 6)
    scanned = memory.scan(features, memories)
    for step in range(7):
        output, memories = memory.step(features[:, step], memories)
        torch.testing.assert_close(scanned[:, step], output, atol=1e-6, rtol=1e-5)


def test_a_gru_and_its_gradients_are_those_of_torchs_own() -> None:
    # On a CPU its scan is written out, on a GPU it is torch's.
    gru = layer("gru")
    assert isinstance(gru, GRU)
    weights = torch.randn(4, 7, 6)
    gradients = []
    for scan in (gru.scan, lambda x, h: gru.gru(x, h.unsqueeze(0))[0]):
        features = torch.linspace(-2, 2, 4 * 7 * INPUTS).reshape(4, 7, INPUTS).requires_grad_()
        memories = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
        outputs = scan(features, memories)
        seen = torch.autograd.grad((weights * outputs).sum(), [features, memories, *gru.parameters()])
        gradients.append([outputs, *seen])
    for ours, theirs in zip(*gradients, strict=True):
        assert ours.abs().max() > 0
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@kinds
def test_sequences_of_any_length_are_unrolled_each_by_itself(kind: str) -> None:
    memory, lengths = layer(kind), [3, 1, 5, 2]
    filled = torch.arange(5) < torch.tensor(lengths)[:, None]
    features, memories = torch.randn(sum(lengths), INPUTS), torch.randn(4, 6)
    together = torch.split(memory.unroll(features, memories, filled), lengths)
    parts = zip(torch.split(features, lengths), memories.split(1), together, strict=True)
    for own, remembered, output in parts:
        torch.testing.assert_close(memory.scan(own[None], remembered)[0], output, atol=1e-6, rtol=1e-5)


@kinds
def test_agents_at_the_same_steps_are_unrolled_each_by_itself(kind: str) -> None:
    memory, agents = layer(kind), 3
    filled = torch.tensor([[True, True, False], [True, True, True]])
    features = torch.randn(5, agents, INPUTS)
    together = memory.unroll_each(features, filled)
    assert together.shape == (5, agents, memory.output_size)
    for agent in range(agents):
        alone = memory.unroll(features[:, agent], torch.zeros(2, memory.size), filled)
        torch.testing.assert_close(together[:, agent], alone)


@kinds
def test_padding_changes_no_gradient(kind: str) -> None:
    gradients = []
    for padding in (0, 40):
        memory = layer(kind)
        features = torch.linspace(-1, 1, 6 * INPUTS).reshape(6, INPUTS).requires_grad_()
        filled = torch.arange(4 + padding) < torch.tensor([[4], [2]])
        memory.unroll(features, torch.full((2, 6), 0.5), filled).square().sum().backward()
        gradients.append([features.grad, *(parameter.grad for parameter in memory.parameters())])
    for without, padded in zip(*gradients, strict=True):
        assert without.abs().max() > 0
        torch.testing.assert_close(padded, without, atol=1e-6, rtol=1e-5)


@kinds
@pytest.mark.parametrize("size", [2, 64])
def test_forget_gates_start_open_and_gates_are_drawn_separately(kind: str, size: int) -> None:
    torch.manual_seed(3)
    memory = make_memory(40, MemorySettings(type=kind, memory_size=size))
    hidden, gates, kept = memory.output_size, {"lstm": 4, "gru": 3}[kind], 1
    parameters = dict(memory.named_parameters())
    for name in (f"{kind}.bias_ih_l0", f"{kind}.bias_hh_l0"):
        expected = torch.zeros(gates, hidden)
        expected[kept] = 1.0
        assert torch.equal(parameters[name].reshape(gates, hidden), expected)
    for name, inputs in ((f"{kind}.weight_ih_l0", 40), (f"{kind}.weight_hh_l0", hidden)):
        bound = math.sqrt(6.0 / (inputs + hidden))  # Xavier's, of one gate
        weights = parameters[name].detach().numpy()
        assert np.abs(weights).max() <= bound
        if size == 64:
            assert (np.abs(weights).reshape(gates, -1).max(axis=1) > 0.9 * bound).all()
