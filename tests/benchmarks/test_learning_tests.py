"""A few of ML-Agents' learning tests, with seeds that the page of results does not have."""

from __future__ import annotations

import pytest
from learning.cases import cases
from learning.running import run_case

pytestmark = pytest.mark.learning

SEEDS = {
    "simple_ppo[discrete]": 11,
    "simple_ppo[continuous]": 12,
    "2d_ppo[2 continuous]": 13,
    "recurrent_ppo[discrete]": 14,
    "simple_sac[discrete]": 15,
    "simple_sac[continuous]": 16,
    "gail_ppo[continuous]": 17,
    "simple_poca[discrete, 2 agents]": 18,
    "simple_ghost[continuous]": 19,
    "simple_asymm_ghost[discrete]": 20,
}

IN_CI = {"simple_poca[discrete, 2 agents]"}
"""A team, where tests/trainer_service/running/training has runs of agents of their own."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in IN_CI else pytest.mark.thorough)
        for case in cases()
        if case.name in SEEDS
    ],
)
def test_it_is_learned(case) -> None:
    result = run_case(case, SEEDS[case.name])
    assert result.passed, result


def test_every_one_of_them_exists() -> None:
    assert {case.name for case in cases()} >= set(SEEDS)
