"""Learners of a group's action values: targets in numbers, and what is ignored, refused, saved and exported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from replayed import learn_from
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.algorithms.common.off_policy.group_replay import GroupView
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.learning.algorithms.common.off_policy.mixer_state import MixerState
from trainer_service.learning.networks.groups.histories import GroupInput
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, ObservationSpec

TYPES = ["idqn", "vdn", "qmix"]
EYES = ObservationSpec("eyes", (2,))
SPEC = BehaviorSpec((EYES,), ActionSpec(0, (3,)))
NUM_AGENTS = 2


def settings_of(
    trainer_type: str, *, network: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    return {
        "trainer_type": trainer_type,
        "hyperparameters": {
            "group_size": NUM_AGENTS,
            "batch_size": 16,
            "buffer_size": 200,
            "steps_per_update": 8,
            "exploration_steps": 200,
            **changes,
        },
        "network_settings": {"hidden_units": 8, "num_layers": 1, **(network or {})},
        "reward_signals": {"extrinsic": {"gamma": 0.95, "strength": 1.0}},
        "time_horizon": 16,
        "max_steps": 10**6,
    }


def learner(trainer_type: str, spec: BehaviorSpec = SPEC, **changes: Any) -> GroupQLearner:
    settings = TrainerSettings.model_validate(settings_of(trainer_type, **changes))
    seen = selector_for(spec, settings).spec
    made = ALGORITHMS[trainer_type](seen, settings, Compute(torch.device("cpu"), 1))
    assert isinstance(made, GroupQLearner)
    return made


def minibatch(**changes: Any) -> JointMinibatch:
    """One joint step of two agents that are there before and after, and choose 0."""
    given: dict[str, Any] = {
        "observations": [torch.tensor([[[0.1, 0.2], [0.3, 0.4]]])],
        "next_observations": [torch.tensor([[[0.5, 0.6], [0.7, 0.8]]])],
        "state": None,
        "next_state": None,
        "present": torch.tensor([[True, True]]),
        "next_present": torch.tensor([[True, True]]),
        "continuous_actions": torch.empty(1, NUM_AGENTS, 0),
        "actions": torch.zeros(1, NUM_AGENTS, 1, dtype=torch.int64),
        "allowed": None,
        "next_allowed": None,
        "rewards": torch.tensor([[1.0, 2.0]]),
        "summed_rewards": torch.tensor([3.0]),
        "terminated": torch.tensor([[False, False]]),
        "discounts": torch.full((1, NUM_AGENTS), 0.95),
        "weights": None,
    }
    return JointMinibatch(**{**given, **changes})


def fixed(made: GroupQLearner, *, now: Any, chooses: Any, judges: Any) -> GroupQLearner:
    """Says what its networks think of this joint step, and its two estimates of the next one. Each [n, K]."""
    now, chooses, judges = (torch.tensor([table], dtype=torch.float32) for table in (now, chooses, judges))

    def online(seen: GroupInput) -> Tensor:
        return now if float(seen.observations[0][0, 0, 0]) < 0.5 else chooses

    networks, targets = made.networks["network"].network, made.networks["target"].network
    networks.group_outputs = online  # type: ignore[assignment]
    targets.group_outputs = lambda seen: judges  # type: ignore[assignment]
    return made


GOLDEN = {"now": [[0.0] * 3] * 2, "chooses": [[1, 3, 2], [0, 0, 9]], "judges": [[5, 0.5, 1], [7, 7, 2]]}


@pytest.mark.parametrize(("double", "first", "second"), [(True, 1.475, 3.9), (False, 5.75, 8.65)])
def test_one_estimate_chooses_and_the_other_judges(double: bool, first: float, second: float) -> None:
    # 1 + 0.95 · ½ and 2 + 0.95 · 2; with one estimate 1 + 0.95 · 5 and 2 + 0.95 · 7.
    errors = fixed(learner("idqn", double=double), **GOLDEN).td_errors(minibatch())
    assert errors.target.item() == pytest.approx((first + second) / 2)
    assert errors.absolute.tolist() == pytest.approx([(first + second) / 2])
    assert errors.loss.item() == pytest.approx(first**2 + second**2)
    assert errors.squared_by_agent.tolist() == pytest.approx([first**2, second**2])


def test_forbidden_choices_are_nobodys_best() -> None:
    allowed = torch.tensor([[[True, False, True], [True, True, False]]])
    errors = fixed(learner("idqn"), **GOLDEN).td_errors(minibatch(next_allowed=allowed))
    # Of what is left, 2 is best for the first and 0 for the second.
    assert errors.target.item() == pytest.approx((1 + 0.95 * 1 + 2 + 0.95 * 7) / 2)


def test_dead_agents_have_no_value_and_absent_ones_no_error() -> None:
    dead = minibatch(terminated=torch.tensor([[True, False]]), next_present=torch.tensor([[False, True]]))
    errors = fixed(learner("idqn"), **GOLDEN).td_errors(dead)
    assert errors.loss.item() == pytest.approx(1.0**2 + 3.9**2)
    alone = minibatch(present=torch.tensor([[False, True]]), next_present=torch.tensor([[False, True]]))
    errors = fixed(learner("idqn"), **GOLDEN).td_errors(alone)
    assert errors.loss.item() == pytest.approx(3.9**2)
    assert errors.target.item() == errors.absolute.item() == pytest.approx(3.9)


def test_everyones_rewards_for_everyone() -> None:
    errors = fixed(learner("idqn", reward_mode="team_sum"), **GOLDEN).td_errors(minibatch())
    assert errors.loss.item() == pytest.approx((3 + 0.475) ** 2 + (3 + 1.9) ** 2)


def test_who_died_is_not_worth_what_its_successor_will_be() -> None:
    replaced = minibatch(terminated=torch.tensor([[True, False]]))
    errors = fixed(learner("idqn", reward_mode="team_sum"), **GOLDEN).td_errors(replaced)
    assert errors.loss.item() == pytest.approx(3**2 + (3 + 1.9) ** 2)


def test_values_that_add_up() -> None:
    tables = {**GOLDEN, "now": [[1.5, 0, 0], [0.25, 0, 0]]}
    errors = fixed(learner("vdn"), **tables).td_errors(minibatch())
    assert errors.value.item() == pytest.approx(1.75)
    assert errors.target.item() == pytest.approx(3 + 0.95 * (0.5 + 2))
    assert errors.loss.item() == pytest.approx((1.75 - 5.375) ** 2)


@pytest.mark.parametrize("trainer_type", ["vdn", "qmix"])
def test_where_nobody_is_left_the_group_is_worth_nothing(trainer_type: str) -> None:
    over = minibatch(terminated=torch.tensor([[True, True]]), next_present=torch.tensor([[False, False]]))
    errors = fixed(learner(trainer_type), **GOLDEN).td_errors(over)
    assert errors.target.item() == pytest.approx(3.0)
    alive = minibatch(terminated=torch.tensor([[True, False]]), next_present=torch.tensor([[False, True]]))
    one = fixed(learner("vdn"), **GOLDEN).td_errors(alive)
    assert one.target.item() == pytest.approx(3 + 0.95 * 2)


SECOND_BEST = torch.tensor([[[2], [2]]])


@pytest.mark.parametrize(
    ("allowed", "gap"), [(None, 4.0), (torch.tensor([[[False, True, True], [True] * 3]]), 0.0)]
)
def test_what_is_not_best_stands_out_by_advantage_learning(allowed: Tensor | None, gap: float) -> None:
    # In the target network's eyes the choice 2 is 4 worse than the first's best, or best of what is allowed to it; for
    # the second it is 5 worse.
    batch = minibatch(actions=SECOND_BEST, allowed=allowed)
    errors = fixed(learner("idqn", advantage_learning=0.5), **GOLDEN).td_errors(batch)
    assert errors.loss.item() == pytest.approx((1.475 - 0.5 * gap) ** 2 + (3.9 - 0.5 * 5) ** 2)
    together = fixed(learner("vdn", advantage_learning=0.5), **GOLDEN).td_errors(batch)
    assert together.target.item() == pytest.approx(5.375 - 0.5 * (gap + 5))
    best = fixed(learner("vdn", advantage_learning=0.5), **GOLDEN).td_errors(minibatch())
    assert best.target.item() == pytest.approx(5.375)


def test_the_gap_of_a_mixer_is_that_of_the_group() -> None:
    made = fixed(learner("qmix", advantage_learning=0.5), **GOLDEN)
    batch = minibatch(actions=SECOND_BEST)
    mixer, state = made.networks["target"].mixer, batch.observations[0].flatten(1)
    gap = mixer(torch.tensor([[5.0, 7.0]]), state) - mixer(torch.tensor([[1.0, 2.0]]), state)
    plain = fixed(learner("qmix"), **GOLDEN)
    plain.networks["target"].load_state_dict(made.networks["target"].state_dict())
    lowered = plain.td_errors(batch).target.item() - made.td_errors(batch).target.item()
    assert lowered == pytest.approx(0.5 * gap.item(), abs=1e-5)
    assert gap.item() > 0.0


def test_what_was_drawn_too_often_weighs_less() -> None:
    for trainer_type in TYPES:
        full, half = (
            fixed(learner(trainer_type), **GOLDEN).td_errors(minibatch(weights=weights))
            for weights in (None, torch.tensor([0.5]))
        )
        assert half.loss.item() == pytest.approx(full.loss.item() / 2)
        assert torch.equal(half.absolute, full.absolute)


WITH_STATE = BehaviorSpec((ObservationSpec(GLOBAL_STATE, (4,)), EYES), ActionSpec(0, (3,)))


def test_the_mixers_state_is_what_all_see_or_the_simulators() -> None:
    cpu, seen = torch.device("cpu"), [torch.arange(4.0).view(1, 2, 2)]
    joint = MixerState(GroupView.of(SPEC, NUM_AGENTS), "joint", cpu)
    assert joint.size == 4
    assert joint.now(minibatch(observations=seen)).tolist() == [[0, 1, 2, 3]]
    told = MixerState(GroupView.of(WITH_STATE, NUM_AGENTS), "environment", cpu)
    of_all, there = torch.tensor([[[9.0] * 4, [5.0] * 4]]), torch.tensor([[False, True]])
    assert told.now(minibatch(state=of_all, present=there)).tolist() == [[5.0] * 4]
    assert told.next(minibatch(next_state=of_all, next_present=~there)).tolist() == [[9.0] * 4]
    learner("qmix", WITH_STATE, state="environment")
    with pytest.raises(ValueError, match=r"'global_state'.* does not have"):
        learner("qmix", state="environment")


@pytest.mark.parametrize(("n_step", "expected"), [(2, 8), (3, 12), (8, 16)])
def test_the_horizon_is_short_but_longer_than_n_steps(n_step: int, expected: int) -> None:
    # Of a time_horizon of 16.
    assert learner("vdn", n_step=n_step).horizon == expected


def test_targets_follow_slowly_or_all_at_once() -> None:
    def vector(network: torch.nn.Module) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in network.parameters()])

    made = learner("qmix", tau=0.25)
    before = vector(made.networks["target"])
    with torch.no_grad():
        made.optimizers["optimizer"].parameters.vector.add_(1.0)
    learn_from(made, minibatch())
    torch.testing.assert_close(vector(made.networks["target"]), before + 0.25)
    copied = learner("qmix", target_update=3)
    with torch.no_grad():
        copied.optimizers["optimizer"].parameters.vector.add_(1.0)
    for same in (False, False, True):
        learn_from(copied, minibatch())
        assert torch.equal(*(vector(copied.networks[name]) for name in ("target", "network"))) == same
