"""What is special about the compiled kernel; that it computes what autograd does is in ../test_ppo_kernels.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from ppo_cases import Case, Learner, compiled, compiled_libraries
from torch import Tensor

from trainer_service.learning.kernels.compiled import ppo
from trainer_service.learning.kernels.compiled.library import CompiledLibrary
from trainer_service.learning.kernels.ppo_epoch import Minibatch
from trainer_service.ops.ppo_loss import ppo_loss


@pytest.fixture(
    params=compiled_libraries() or [None], ids=lambda library: library.name if library else "none"
)
def library(request: pytest.FixtureRequest) -> CompiledLibrary:
    if request.param is None:
        pytest.skip("no compiled kernel was built here")
    found: CompiledLibrary = request.param
    return found


def learned(library: CompiledLibrary, spans: list[Minibatch]) -> Tensor:
    """All that an epoch leaves behind, as one vector."""
    learner = Learner(Case(rows=300, hidden_units=33))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    learner.by_kernel(compiled(library), order, spans)
    adam = learner.optimizer.adam
    return torch.cat([learner.parameters.vector, adam.mean, adam.square, adam.steps[None]])


def test_however_many_steps_a_call_makes_the_bits_are_equal(
    library: CompiledLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Case(rows=300).spans(64)
    at_once = learned(library, spans)
    monkeypatch.setattr(ppo, "_PRODUCTS_PER_CALL", 0.0)
    assert torch.equal(learned(library, spans), at_once)


@pytest.mark.parametrize(
    "case",
    [Case(rows=300, hidden_units=130), Case(shared_critic=True), Case(memory_size=24)],
    ids=["two trunks", "one trunk", "memory"],
)
def test_on_two_threads_the_bits_are_those_of_one(
    library: CompiledLibrary, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setattr(ppo, "_PRODUCTS_OF_TWO_THREADS", 0)
    threads: list[int] = []

    def steps(*arguments: Any) -> int:
        threads.append(arguments[-1])
        done: int = library.steps(*arguments)
        return done

    def learned_on(cores: int) -> list[Tensor]:
        monkeypatch.setattr(ppo, "usable_cores", lambda: cores)
        learner, generator = Learner(case), torch.Generator().manual_seed(1)
        losses = learner.by_kernel(compiled(replace(library, steps=steps)), *case.epoch(7, generator))
        adam = learner.optimizer.adam
        return [losses, learner.parameters.vector, learner.parameters.gradient, adam.mean, adam.square]

    assert all(map(torch.equal, learned_on(1), learned_on(2)))
    assert set(threads) == ({1} if case.shared_critic or case.memory_size else {1, 2})


def test_minibatches_may_be_of_any_sizes_with_gaps_between_them(library: CompiledLibrary) -> None:
    odd = [slice(0, 64), slice(64, 128), slice(128, 130), slice(130, 194), slice(200, 300)]
    spans = [Minibatch(rows, 1.0) for rows in odd]
    simple = Learner(Case(rows=300, hidden_units=33))
    simple.by_autograd(torch.randperm(300, generator=torch.Generator().manual_seed(1)), spans)
    ours = learned(library, spans)
    torch.testing.assert_close(
        ours[: len(simple.parameters.vector)], simple.parameters.vector, atol=1e-4, rtol=0
    )
    assert ours[-1] == 5


@pytest.mark.parametrize("wide", [1, 100])
def test_widths_that_no_tile_divides(library: CompiledLibrary, wide: int) -> None:
    case = Case(sensors=(61,), hidden_units=97, continuous=17, branches=(wide, 2), signals=3, rows=131)
    ours, simple = Learner(case), Learner(case)
    ours.by_kernel(compiled(library), torch.arange(131), case.spans(131))
    simple.by_autograd(torch.arange(131), case.spans(131))
    error = (ours.parameters.gradient - simple.parameters.gradient).norm()
    assert error < 1e-5 * simple.parameters.gradient.norm()


def test_a_row_without_any_allowed_choice_is_as_in_torch(library: CompiledLibrary) -> None:
    case = Case(rows=20, max_grad_norm=None)
    learner = Learner(case)
    learner.targets.allowed_actions[3] = False
    parameters, values = learner.network.policy_and_values([learner.observations])
    loss, expected = ppo_loss(*parameters[:3], values, learner.targets, case.steps(), case.branches)
    (by_logits,) = torch.autograd.grad(loss, [parameters.logits])
    losses = learner.by_kernel(compiled(library), torch.arange(20), case.spans(20))
    torch.testing.assert_close(losses, expected)
    heads = learner.network.actions
    assert heads.logits is not None
    torch.testing.assert_close(heads.logits.bias.grad, by_logits.sum(dim=0), atol=1e-6, rtol=1e-5)
