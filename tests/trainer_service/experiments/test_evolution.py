"""Selection and perturbation of a population's members."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from trainer_service.errors import UserError
from trainer_service.experiments.evolution import (
    Member,
    first_generation,
    lineage,
    neighbor,
    next_generation,
    perturbed,
    ranking,
    segments_of,
    select,
)
from trainer_service.experiments.schedule import Segment
from trainer_service.experiments.space import read_space

RATE, BATCH, EPOCHS, KIND, MOMENTUM = "a.rate", "a.batch", "a.epochs", "a.kind", "a.momentum"
SPACE = read_space(
    {
        RATE: {"low": 1e-5, "high": 1e-2, "log": True},
        BATCH: {"choices": [32, 64, 128]},
        EPOCHS: {"low": 1, "high": 10, "int": True},
        KIND: {"choices": ["plain", "heavy"]},
        MOMENTUM: {"low": 0.1, "high": 0.9, "when": {KIND: "heavy"}},
    }
)


def test_the_worst_quarter_is_replaced_by_the_best_quarter() -> None:
    scores = [4.0, 1.0, 8.0, 3.0, 5.0, 2.0, 7.0, 6.0]
    sources = {tuple(select(scores, random.Random(seed))) for seed in range(60)}
    assert sources == {(0, one, 2, 3, 4, other, 6, 7) for one in (2, 6) for other in (2, 6)}


def test_a_failed_member_is_always_replaced_by_one_of_the_best() -> None:
    assert select([None, 1.0, 3.0, None, 2.0], random.Random(0)) == [2, 2, 2, 2, 4]
    assert select([None, 1.0], random.Random(0)) == [1, 1]
    with pytest.raises(UserError, match="no member has a score"):
        select([None, None], random.Random(0))


def test_of_two_or_three_members_one_is_replaced() -> None:
    assert select([1.0, 2.0], random.Random(0)) == [1, 1]
    assert select([3.0, 2.0, 1.0], random.Random(0)) == [0, 1, 0]
    assert select([3.0], random.Random(0)) == [0]


def test_the_best_member_ranks_last() -> None:
    assert ranking([2.0, None, 3.0, 1.0]) == [3, 0, 2]


def test_a_number_moves_by_a_fifth_within_its_range() -> None:
    rate, epochs = SPACE.parameters[RATE], SPACE.parameters[EPOCHS]
    assert {neighbor(rate, 1e-3, random.Random(seed)) for seed in range(20)} == {8e-4, 1.2e-3}
    assert {neighbor(rate, 9e-3, random.Random(seed)) for seed in range(20)} == {7.2e-3, 1e-2}
    assert {neighbor(epochs, 5, random.Random(seed)) for seed in range(20)} == {4, 6}
    # A fifth of 2 rounds to nothing; 1 is the smallest.
    assert {neighbor(epochs, 2, random.Random(seed)) for seed in range(20)} == {1, 3}
    assert {neighbor(epochs, 1, random.Random(seed)) for seed in range(20)} == {1, 2}


def test_a_choice_moves_to_one_beside_it() -> None:
    batch = SPACE.parameters[BATCH]
    assert {neighbor(batch, 64, random.Random(seed)) for seed in range(20)} == {32, 128}
    assert {neighbor(batch, 32, random.Random(seed)) for seed in range(20)} == {32, 64}
    fixed = read_space({"a": {"fixed": 3}}).parameters["a"]
    assert neighbor(fixed, 3, random.Random(0)) == 3


def test_a_quarter_of_perturbed_values_is_drawn_anew() -> None:
    generator = random.Random(1)
    values = {RATE: 1e-3, BATCH: 64, EPOCHS: 5, KIND: "plain"}
    rates = Counter(perturbed(SPACE, values, generator)[RATE] for _ in range(4000))
    assert rates[8e-4] + rates[1.2e-3] == pytest.approx(3000, abs=100)
    assert len(rates) > 900


def test_a_parameter_whose_condition_holds_only_now_gets_a_value() -> None:
    generator = random.Random(1)
    values = {RATE: 1e-3, BATCH: 64, EPOCHS: 5, KIND: "plain"}
    found = [perturbed(SPACE, values, generator) for _ in range(50)]
    assert {MOMENTUM in each for each in found} == {True, False}
    assert all((each[KIND] == "heavy") == (MOMENTUM in each) for each in found)


def test_a_generation_repeats_and_its_runs_have_seeds_of_their_own() -> None:
    first = first_generation(SPACE, 4, seed=7)
    assert first == first_generation(SPACE, 4, seed=7)
    assert first != first_generation(SPACE, 4, seed=8)
    first = [
        member.model_copy(update={"score": float(score), "ended": True}) for score, member in enumerate(first)
    ]
    second = next_generation(SPACE, [first], seed=7)
    assert second == next_generation(SPACE, [first], seed=7)
    assert [member.source for member in second] == [3, 1, 2, 3]
    assert [member.values for member in second[1:]] == [member.values for member in first[1:]]
    assert second[0].values != first[3].values
    assert len({member.seed for member in first + second}) == 8
    assert not any(member.ended or member.score is not None for member in second)


def test_the_schedule_of_a_member_is_that_of_the_members_it_descends_from() -> None:
    first = [Member(source=None, seed=0, values={RATE: 0.1}), Member(source=None, seed=1, values={RATE: 0.2})]
    second = [Member(source=1, seed=2, values={RATE: 0.3}), Member(source=1, seed=3, values={RATE: 0.2})]
    third = [Member(source=0, seed=4, values={RATE: 0.3}), Member(source=0, seed=5, values={RATE: 0.4})]
    line = lineage([first, second, third], 1)
    assert line == [first[1], second[0], third[1]]
    assert segments_of(line, [100, 200, None]) == [
        Segment(until=100, settings={"env_settings.seed": 1, RATE: 0.2}),
        Segment(until=200, settings={"env_settings.seed": 2, RATE: 0.3}),
        Segment(settings={"env_settings.seed": 5, RATE: 0.4}),
    ]
