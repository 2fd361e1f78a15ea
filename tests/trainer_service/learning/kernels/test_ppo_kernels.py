"""The compiled kernel of PPO beside autograd of the loss as its papers state it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st
from ppo_cases import Case, KernelKind, Learner, compiled, compiled_libraries
from torch import Tensor

from trainer_service.learning.kernels.compiled import ppo
from trainer_service.learning.kernels.mlp_layout import layout_of
from trainer_service.learning.kernels.ppo_epoch import Minibatch
from trainer_service.learning.networks.shard import Part, Shard

KERNELS = [pytest.param(compiled(library), id=library.name) for library in compiled_libraries()] or [
    pytest.param(None, id="none", marks=pytest.mark.skip(reason="no compiled kernel was built here"))
]


def distance(ours: Tensor, theirs: Tensor) -> float:
    """How far two vectors lie apart, as a share of their length.

    A gradient shorter than 0.01 is what is left of numbers of about 1 that cancel, and is rounded as they are.
    """
    return float((ours - theirs).norm() / theirs.norm().clamp(min=0.01))


cases = st.builds(
    Case,
    sensors=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    continuous=st.integers(1, 4),
    branches=st.lists(st.integers(1, 5), max_size=3).map(tuple),
    hidden_units=st.integers(1, 40),
    num_layers=st.integers(1, 4),
    shared_critic=st.booleans(),
    signals=st.integers(1, 3),
    rows=st.integers(1, 100),
    clip_epsilon=st.floats(0.01, 0.5),
    value_range=st.floats(0.01, 2.0),
    entropy=st.floats(0.0, 0.1),
    max_grad_norm=st.none() | st.floats(0.001, 10.0),
    seed=st.integers(0, 10**6),
)
without_numbers = st.builds(
    Case,
    continuous=st.just(0),
    branches=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    num_layers=st.integers(1, 3),
    shared_critic=st.booleans(),
    rows=st.integers(1, 100),
    seed=st.integers(0, 10**6),
)


@pytest.mark.parametrize("kind", KERNELS)
@given(case=cases | without_numbers)
@examples(50)
def test_the_gradient_is_autograds(kind: KernelKind, case: Case) -> None:
    ours, theirs = Learner(case), Learner(case)
    order = torch.randperm(case.rows, generator=torch.Generator().manual_seed(case.seed))
    losses = ours.by_kernel(kind, order, case.spans(case.rows))
    expected = theirs.by_autograd(order, case.spans(case.rows))
    assert distance(ours.parameters.gradient, theirs.parameters.gradient) < 1e-4
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("shared_critic", [False, True])
def test_values_are_those_of_the_network(kind: KernelKind, shared_critic: bool) -> None:
    learner = Learner(Case(rows=5000, signals=2, hidden_units=64, shared_critic=shared_critic))
    with torch.no_grad():
        expected = learner.network.values([learner.observations])
    torch.testing.assert_close(learner.kernel(kind).values([learner.observations]), expected)
    assert learner.kernel(kind).values([learner.observations[:0]]).shape == (0, 2)


DEFAULTS = {
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "bfloat16": lambda: torch.set_default_dtype(torch.bfloat16),
    "meta": lambda: torch.set_default_device("meta"),
}


@pytest.fixture
def defaults_of_before() -> Iterator[None]:
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("name", "memory_size"), [("float64", 0), ("bfloat16", 8), ("meta", 8)])
@pytest.mark.parametrize("kind", KERNELS)
def test_defaults_of_torch_do_not_matter(
    kind: KernelKind, name: str, memory_size: int, defaults_of_before: None
) -> None:
    case = Case(memory_size=memory_size)
    plain, other = Learner(case), Learner(case)
    order, spans = case.epoch(20, torch.Generator().manual_seed(1))
    losses, epoch, sequences = torch.zeros(5), other.epoch(order, spans), case.sequences()
    expected = plain.by_kernel(kind, order, spans), plain.kernel(kind).values([plain.observations], sequences)
    DEFAULTS[name]()
    other.kernel(kind).epoch(epoch, losses, lambda number, of: None)
    values = other.kernel(kind).values([other.observations], sequences)
    torch.set_default_device(None)
    assert torch.equal(losses, expected[0])
    assert values.dtype == torch.float32
    assert torch.equal(values, expected[1])
    assert torch.equal(other.parameters.vector, plain.parameters.vector)


@pytest.mark.parametrize(
    "change",
    [
        {"advantage": lambda column: column[1:]},
        {"advantage": lambda column: column.to("meta")},
        {"old_value": lambda column: torch.cat([column, column], dim=1)},
        {"allowed_actions": lambda column: column.float()},
        {"continuous_actions": lambda column: column.bfloat16()},
    ],
)
@pytest.mark.parametrize("kind", KERNELS)
def test_what_does_not_fit_is_refused_before_c_reads_it(
    kind: KernelKind, change: dict[str, Callable[[Tensor], Tensor]]
) -> None:
    learner = Learner(Case())
    learner.targets = learner.targets._replace(
        **{name: to(getattr(learner.targets, name)) for name, to in change.items()}
    )
    with pytest.raises(TypeError, match="the compiled kernel: expected"):
        learner.by_kernel(kind, torch.arange(50), learner.case.spans(20))


@pytest.mark.parametrize("kind", KERNELS)
def test_parameters_and_observations_that_do_not_fit_are_refused(kind: KernelKind) -> None:
    learner = Learner(Case())
    kernel = learner.kernel(kind)
    for wrong in (learner.observations[:, 1:], learner.observations.double().to("meta")):
        with pytest.raises(TypeError, match="the compiled kernel: expected"):
            kernel.values([wrong])
    with pytest.raises(TypeError, match=r"expected 50 x torch\.int64"):
        learner.by_kernel(kind, torch.arange(50).int(), learner.case.spans(50))
    learner.parameters.vector = learner.parameters.vector.double()
    with pytest.raises(TypeError, match="float32"):
        kernel.values([learner.observations])


@pytest.mark.parametrize("kind", KERNELS)
def test_what_was_learned_before_an_interruption_stands(
    kind: KernelKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ppo, "_PRODUCTS_PER_CALL", 0.0)
    learner, whole = Learner(Case()), Learner(Case())
    order, spans = torch.arange(50), learner.case.spans(10)
    heard: list[int] = []

    def progress(number: int, of: int) -> None:
        heard.append(number)
        if number == 2:
            raise KeyboardInterrupt

    kernel = learner.kernel(kind)
    with pytest.raises(KeyboardInterrupt):
        kernel.epoch(learner.epoch(order, spans), torch.zeros(5), progress)
    assert heard == [0, 1, 2]
    whole.by_kernel(kind, order, spans[:2])
    assert torch.equal(learner.parameters.vector, whole.parameters.vector)


@pytest.mark.parametrize("kind", KERNELS)
def test_what_is_no_number_shows_in_the_losses(kind: KernelKind) -> None:
    learner = Learner(Case())
    learner.targets.advantage[3] = float("nan")
    losses = learner.by_kernel(kind, torch.arange(50), learner.case.spans(10))
    assert not torch.isfinite(losses).all()


class Sum(Shard):
    """One of two learner ranks, whose other has sent its gradients already."""

    world = 2

    def __init__(self, rank: int, others: list[Tensor]) -> None:
        self.rank = rank
        self.others = others

    def add_up(self, tensor: Tensor) -> Tensor:
        self.others.append(tensor.clone())
        return tensor


@pytest.mark.parametrize("kind", KERNELS)
def test_learner_ranks_compute_their_own_rows(kind: KernelKind) -> None:
    case = Case(rows=51, max_grad_norm=None)
    whole = Learner(case)
    losses = whole.by_kernel(kind, torch.arange(51), case.spans(51))
    gradients, parts = [], []
    for rank in (0, 1):
        shard = Sum(rank, [])
        learner = Learner(case, shard)
        first, stop, step = shard.rows(51).indices(51)
        part: Part = shard.part(51)
        span = Minibatch(slice(first, stop, step), part.share)
        parts.append(learner.by_kernel(kind, torch.arange(51), [span]))
        gradients += shard.others
    assert distance(gradients[0] + gradients[1], whole.parameters.gradient) < 1e-5
    torch.testing.assert_close(parts[0] + parts[1], losses)


@pytest.mark.parametrize("kind", KERNELS)
def test_bodies_that_are_not_alike_are_refused(kind: KernelKind) -> None:
    learner = Learner(Case())
    layout = layout_of(learner.network, learner.parameters)
    assert layout is not None
    assert layout.critic is not None
    with pytest.raises(ValueError, match="other layers"):
        kind(replace(layout, critic=layout.critic[:1]), learner.optimizer)
