"""SAC's gradient steps by the compiled kernel beside autograd's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st
from made_trajectories import trajectories_of
from ppo_cases import compiled_libraries
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import SAC, Compute
from trainer_service.learning.kernels import choice
from trainer_service.learning.kernels.compiled.library import CompiledLibrary
from trainer_service.learning.kernels.compiled.sac import CompiledSAC, SoftBatch
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

LIBRARIES = [pytest.param(library, id=library.name) for library in compiled_libraries()] or [
    pytest.param(None, id="none", marks=pytest.mark.skip(reason="no compiled kernel was built here"))
]
RATE = 1e-5
"""Small, so that a sign of Adam's first step, which rounding may turn, changes little."""

TWO_SIGNALS = {
    "extrinsic": {"gamma": 0.9, "strength": 1.0},
    "rnd": {"gamma": 0.8, "strength": 0.5, "learning_rate": RATE},
}


class Case:
    """A learner that has seen some steps, of which many ended an episode."""

    def __init__(
        self,
        sensors: tuple[int, ...] = (5,),
        actions: int = 2,
        branches: tuple[int, ...] = (),
        allowed: float = 1.0,
        rows: int = 40,
        signals: int = 1,
        seed: int = 1,
        network: Mapping[str, Any] | None = None,
        **hyper: Any,
    ) -> None:
        values = {
            "batch_size": rows, "buffer_size": 400, "buffer_init_steps": 0, "steps_per_update": 64,
            "learning_rate": RATE, **hyper,
        }  # fmt: skip
        settings = {
            "trainer_type": "sac",
            "hyperparameters": values,
            "network_settings": {"hidden_units": 24, "num_layers": 2, **(network or {})},
        }
        if signals == 2:
            settings["reward_signals"] = TWO_SIGNALS
        self.spec = BehaviorSpec(
            tuple(ObservationSpec(f"numbers {size}", (size,)) for size in sensors),
            ActionSpec(actions, branches),
        )
        self.settings = TrainerSettings.model_validate(settings)
        self.seed, self.allowed = seed, allowed

    def learner(self) -> SAC:
        made = SAC(self.spec, self.settings, Compute(torch.device("cpu"), self.seed))
        made.record(self.experience())
        made.replay.schedule.steps = self.settings.hyperparameters.learning_starts + 64  # type: ignore[union-attr]
        return made

    def experience(self) -> Trajectories:
        rng, steps, lengths = np.random.default_rng(self.seed), 64, [4] * 16
        actions, branches = self.spec.action_spec.continuous_size, self.spec.action_spec.discrete_branches

        def seen(rows: int) -> tuple[Any, ...]:
            return tuple(
                rng.normal(size=(rows, *sensor.shape)).astype(np.float32)
                for sensor in self.spec.observation_specs
            )

        def mask(rows: int) -> Any:
            return rng.random((rows, sum(branches))) < self.allowed

        return trajectories_of(
            seen(steps),
            lengths,
            discrete_actions=rng.integers(0, branches or (), (steps, len(branches))).astype(np.int32),
            allowed_actions=mask(steps),
            final_allowed_actions=mask(len(lengths)),
            continuous_actions=np.tanh(rng.normal(size=(steps, actions))).astype(np.float32),
            rewards=rng.normal(size=steps).astype(np.float32),
            final_observations=seen(len(lengths)),
            terminated=np.arange(len(lengths)) % 2 == 0,
        )


def kernel_of(learner: SAC) -> CompiledSAC | None:
    """What makes a learner's steps; None for autograd."""
    chosen: CompiledSAC | None = learner._kernel.chosen
    return chosen


def both(
    case: Case, library: CompiledLibrary, change: Callable[[SAC], None] | None = None
) -> tuple[SAC, SAC, dict[str, float], dict[str, float]]:
    """Two equal learners after an update, by the kernel and by autograd, and the updates' metrics."""
    learners, metrics = [], []
    for fast in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "compiled_library", lambda fast=fast: library if fast else None)
            learner = case.learner()
            if change is not None:
                with torch.no_grad():
                    change(learner)
            metrics.append(dict(learner.update(0)))
        assert (kernel_of(learner) is not None, learner.replay.updates) == (fast, 1)
        learners.append(learner)
    return *learners, *metrics  # type: ignore[return-value]


def gradients(learner: SAC) -> list[Tensor]:
    return [optimizer.parameters.gradient for optimizer in learner.optimizers.values()]


def assert_equal_but_for_rounding(ours: SAC, theirs: SAC, tolerance: float = 2e-5) -> None:
    """Gradients, Adam's moments, and the targets, which the critics' new parameters have moved, or running moments."""
    for (key, own), others in zip(ours.optimizers.items(), theirs.optimizers.values(), strict=True):
        pairs = ((own.parameters.gradient, others.parameters.gradient), (own.adam.mean, others.adam.mean))
        for mine, other in pairs:
            assert float((mine - other).norm() / other.norm().clamp(min=0.01)) < tolerance, key
        assert torch.equal(own.adam.steps, others.adam.steps)
    if "target_critics" in ours.networks:
        moved = [list(learner.networks["target_critics"].parameters()) for learner in (ours, theirs)]
        torch.testing.assert_close(*moved, atol=3 * RATE, rtol=1e-5)
    for (name, mine), other in zip(
        ours.networks["critics"].named_buffers(), theirs.networks["critics"].buffers(), strict=True
    ):
        torch.testing.assert_close(
            mine, other, atol=1e-5, rtol=1e-5, msg=lambda said, name=name: f"{name}: {said}"
        )


def trained_norms(batches: int, seed: int) -> Callable[[SAC], None]:
    """Gives batch normalization parameters and running moments as after so many batches.

    Some gradients are 0 but for rounding, which normalization removes: with this ε Adam does not follow their sign.
    """

    def change(learner: SAC) -> None:
        generator = torch.Generator().manual_seed(seed)
        for norm in learner.networks["critics"].norms:
            for number in (norm.weight, norm.bias, norm.mean, norm.variance):
                number.normal_(std=0.5, generator=generator)
            norm.weight.add_(1.0)
            norm.variance.exp_()
            norm.batches.fill_(batches)
        for optimizer in learner.optimizers.values():
            optimizer.adam.epsilon = 1e-3

    return change


cases, normalized_cases = (
    st.builds(
        lambda sizes, **others: Case(actions=sizes[0], branches=sizes[1], **others),
        sensors=st.lists(st.integers(1, 20), min_size=1, max_size=3).map(tuple),
        sizes=st.tuples(st.integers(0, 9), st.lists(st.integers(1, 5), max_size=3).map(tuple)).filter(any),
        allowed=st.sampled_from([1.0, 0.6]),
        # Few rows or units may differ so little that their normalization multiplies rounding errors.
        rows=st.integers(8 if norm == "batch" else 1, 300),
        seed=st.integers(0, 10**6),
        network=st.fixed_dictionaries(
            {
                "hidden_units": st.integers(8 if norm == "batch" else 1, 70),
                "num_layers": st.integers(1, 4),
                # ReLU's derivative jumps, and there rounding of normalized sums may choose its side.
                "activation": st.sampled_from(["swish"] if norm == "batch" else ["swish", "relu"]),
                "normalize": st.booleans(),
            }
        ),
        max_grad_norm=st.none() | st.floats(0.01, 10.0),
        tau=st.floats(0.001, 1.0),
        init_entcoef=st.floats(0.01, 2.0),
        replay=st.sampled_from([{"type": "uniform"}, {"type": "prioritized"}]),
        signals=st.integers(1, 2),
        policy_delay=st.integers(1, 2),
        critic_norm=st.just(norm),
        learning_rate=st.just(1e-3 if norm == "batch" else RATE),
    )
    for norm in ("none", "batch")
)


@pytest.mark.parametrize("library", LIBRARIES)
@examples(30)
@given(case=cases)
def test_a_step_is_that_of_autograd(library: CompiledLibrary, case: Case) -> None:
    ours, theirs, said, expected = both(case, library)
    assert_equal_but_for_rounding(ours, theirs)
    assert said == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
@examples(30)
@given(case=normalized_cases, batches=st.sampled_from([0, 20, 99_999, 100_000, 10**9]))
def test_a_step_with_batch_normalization_is_that_of_autograd(
    library: CompiledLibrary, case: Case, batches: int
) -> None:
    ours, theirs, said, expected = both(case, library, trained_norms(batches, case.seed))
    assert {int(norm.batches) for norm in ours.networks["critics"].norms} == {batches + 1}
    assert_equal_but_for_rounding(ours, theirs)
    assert said == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_moments_of_observations_far_from_zero_are_right(
    library: CompiledLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(rows=40, critic_norm="batch")
    experience, step, batches = case.experience(), CompiledSAC.step, []
    for seen in (*experience.observations, *experience.final_observations):
        np.add(seen * 0.01, 1000.0, out=seen)

    def noted(kernel: CompiledSAC, batch: SoftBatch, *arguments: Any) -> Any:
        batches.append(torch.cat([*batch.observations, *batch.next_observations]).double())
        return step(kernel, batch, *arguments)

    monkeypatch.setattr(CompiledSAC, "step", noted)
    monkeypatch.setattr(case, "experience", lambda: experience)
    ours, *_ = both(case, library)
    norm = ours.networks["critics"].norms[0]
    for critic in range(2):
        moments = (each[critic, 0, :5].double() for each in (norm.mean, norm.variance))
        variance, mean = torch.var_mean(batches[0], dim=0, correction=0)
        torch.testing.assert_close(tuple(moments), (mean, variance), atol=0.0, rtol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bias", [-30.0, 3.0])
def test_a_deviation_beyond_its_range_has_no_gradient(library: CompiledLibrary, bias: float) -> None:
    def change(learner: SAC) -> None:
        layer = learner.networks["actor"].actions.log_sigma
        assert layer is not None
        layer.bias.fill_(bias)

    ours, theirs, *_ = both(Case(), library, change)
    assert_equal_but_for_rounding(ours, theirs, 1e-3)
    layer = ours.networks["actor"].actions.log_sigma
    assert layer is not None
    assert not layer.weight.grad.any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_networks_are_left_to_autograd(
    library: CompiledLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "compiled_library", lambda: library)
    assert kernel_of(Case().learner()) is not None
    others = (
        {"activation": "tanh"}, {"hidden_units": 513},
        {"memory": {"memory_size": 8, "sequence_length": 4}},
    )  # fmt: skip
    for network in others:
        case = Case(network=network)
        learner = SAC(case.spec, case.settings, Compute(torch.device("cpu"), 1))
        assert kernel_of(learner) is None, network
    assert kernel_of(Case(optimizer="adamw").learner()) is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert kernel_of(Case().learner()) is None


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("method", ["_step", "targets"])
def test_a_subclass_with_a_step_of_its_own_keeps_it(
    library: CompiledLibrary, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(choice, "compiled_library", lambda: library)
    other = type("Other", (SAC,), {method: partial(getattr(SAC, method))})
    case = Case()
    assert kernel_of(other(case.spec, case.settings, Compute(torch.device("cpu"), 1))) is None
