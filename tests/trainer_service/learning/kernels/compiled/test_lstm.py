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
from trainer_service.learning.kernels.compiled.time_order import TimeOrder, groups
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
def test_many_steps_on_sequences_lead_to_the_same_place(library: CompiledLibrary) -> None:
    case = Case(rows=800, memory_size=64, longest=20, hidden_units=40)
    ours, theirs, generator = Learner(case), Learner(case), torch.Generator().manual_seed(1)
    before = ours.parameters.vector.clone()
    for _ in range(3):
        order, spans = case.epoch(4, generator)
        losses = ours.by_kernel(compiled(library), order, spans)
        expected = theirs.by_autograd(order, spans)
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    assert distance(ours.parameters.vector, theirs.parameters.vector) < 1e-4
    assert distance(ours.parameters.vector, before) > 1e-2, "it must have learned something"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("rows", "shared_critic"), [(1, False), (60, False), (3000, True)])
def test_values_are_those_of_the_network(library: CompiledLibrary, shared_critic: bool, rows: int) -> None:
    case = replace(SMALL, rows=rows, shared_critic=shared_critic, signals=2, longest=64)
    learner, sequences = Learner(case), case.sequences()
    expected = learner.network.values([learner.observations], sequences)
    values = learner.kernel(compiled(library)).values([learner.observations], sequences)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_sequences_that_are_worked_off_together_do_not_touch_each_other(library: CompiledLibrary) -> None:
    kernel, sequences = Learner(SMALL).kernel(compiled(library)), SMALL.sequences()
    assert sequences is not None
    observations = Learner(SMALL).observations
    together, end = kernel.values([observations], sequences), 0
    for number, filled in enumerate(sequences.filled):
        start, end = end, end + int(filled.sum())
        one = Sequences(sequences.memories[number : number + 1], filled[None])
        torch.testing.assert_close(kernel.values([observations[start:end]], one), together[start:end])


@pytest.mark.parametrize("library", LIBRARIES)
def test_gradients_of_parts_add_up_to_that_of_the_whole(library: CompiledLibrary) -> None:
    # As learner ranks share a minibatch.
    (order, (whole,)), (_, parts) = (
        SMALL.epoch(count, torch.Generator().manual_seed(1)) for count in (1000, 8)
    )
    learner = Learner(SMALL)
    kernel, gradient, total = learner.kernel(compiled(library)), learner.parameters.gradient, torch.zeros(())
    for part in parts:
        rows = order[part.rows]
        kernel.gradient([learner.observations], learner.targets, rows, SMALL.steps(), part.sequences)
        total = total + gradient * (len(rows) / SMALL.rows)
    kernel.gradient([learner.observations], learner.targets, order, SMALL.steps(), whole.sequences)
    assert len(parts) > 1
    assert distance(total, gradient) < 1e-5


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_no_number_in_a_memory_shows_in_the_losses(library: CompiledLibrary) -> None:
    order, spans = SMALL.epoch(3, torch.Generator().manual_seed(1))
    assert spans[0].sequences is not None
    spans[0].sequences.memories[0, 0] = float("nan")
    assert not torch.isfinite(Learner(SMALL).by_kernel(compiled(library), order, spans)).all()


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


def test_groups_cover_all_rows_once_and_are_never_empty() -> None:
    case = replace(SMALL, rows=200, longest=30)
    sequences = case.sequences()
    assert sequences is not None
    for rows in (1, 25, 64, 1000):
        found = list(groups(sequences, rows))
        assert [span.start for span, _ in found] == [0, *(span.stop for span, _ in found[:-1])]
        assert found[-1][0].stop == 200
        assert sum(len(group.filled) for _, group in found) == len(sequences.filled)
        for span, group in found:
            assert int(group.filled.sum()) == span.stop - span.start
            assert span.stop - span.start <= rows or len(group.filled) == 1
