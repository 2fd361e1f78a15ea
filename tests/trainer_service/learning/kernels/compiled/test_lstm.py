"""The compiled kernel's LSTM beside torch's: gradients of sequences, and values, against autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st
from ppo_cases import Case, Learner, compiled, compiled_libraries
from torch import Tensor

from trainer_service.learning.kernels.compiled.library import CompiledLibrary
from trainer_service.learning.kernels.compiled.time_order import TimeOrder
from trainer_service.learning.networks.encoders.memory import Sequences

LIBRARIES = [pytest.param(library, id=library.name) for library in compiled_libraries()] or [
    pytest.param(None, id="none", marks=pytest.mark.skip(reason="no compiled kernel was built here"))
]
SMALL = Case(memory_size=8, rows=60)

cases = st.builds(
    Case,
    sensors=st.lists(st.integers(1, 9), min_size=1, max_size=2).map(tuple),
    continuous=st.integers(0, 3),
    branches=st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple),
    hidden_units=st.integers(1, 40),
    num_layers=st.integers(1, 3),
    shared_critic=st.booleans(),
    signals=st.integers(1, 2),
    rows=st.integers(1, 150),
    memory_size=st.integers(1, 40).map(lambda half: 2 * half),
    longest=st.integers(1, 40),
    seed=st.integers(0, 10**6),
)


def distance(ours: Tensor, theirs: Tensor) -> float:
    """How far two vectors lie apart, as a share of their length."""
    return float((ours - theirs).norm() / theirs.norm().clamp(min=0.01))


@pytest.mark.parametrize("library", LIBRARIES)
@given(case=cases)
@examples(30)
def test_the_gradient_of_sequences_is_autograds(library: CompiledLibrary, case: Case) -> None:
    ours, theirs = Learner(case), Learner(case)
    order, spans = case.epoch(1000, torch.Generator().manual_seed(case.seed))
    losses = ours.by_kernel(compiled(library), order, spans)
    expected = theirs.by_autograd(order, spans)
    assert distance(ours.parameters.gradient, theirs.parameters.gradient) < 1e-4
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("rows", "shared_critic"), [(1, False), (60, False), (3000, True)])
def test_values_are_those_of_the_network(library: CompiledLibrary, shared_critic: bool, rows: int) -> None:
    case = replace(SMALL, rows=rows, shared_critic=shared_critic, signals=2, longest=64)
    learner, sequences = Learner(case), case.sequences()
    expected = learner.network.values([learner.observations], sequences)
    values = learner.kernel(compiled(library)).values([learner.observations], sequences)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_without_their_sequences_are_refused(library: CompiledLibrary) -> None:
    learner = Learner(SMALL)
    with pytest.raises(ValueError, match="sequences belong to networks with memory"):
        learner.by_kernel(compiled(library), torch.arange(60), SMALL.spans(60))
    plain = Case(rows=60)
    with pytest.raises(ValueError, match="and to no others"):
        Learner(plain).kernel(compiled(library)).values([Learner(plain).observations], SMALL.sequences())


def test_time_order_by_hand() -> None:
    # Three sequences of 1, 3 and 2 steps lie at rows 0, 1 to 3, and 4 to 5; the longest comes first.
    filled = torch.tensor([[True, False, False], [True, True, True], [True, True, False]])
    order = TimeOrder.of(Sequences(torch.tensor([[10.0], [20.0], [30.0]]), filled))
    assert order.rows.tolist() == [1, 4, 0, 2, 5, 3]
    assert order.active.tolist() == [3, 2, 1]
    assert order.memories.tolist() == [[20.0], [30.0], [10.0]]
