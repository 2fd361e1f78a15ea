"""How often a simulator may be started again."""

from __future__ import annotations

from unity_bridge.programs.launched_process import RestartBudget


def test_restarts_are_limited_over_a_lifetime() -> None:
    budget = RestartBudget(lifetime=2, per_period=-1, period_s=60)
    assert [budget.spend(now) for now in (0, 1)] == ["", ""]
    assert budget.spend(1000) == "it was already started again 2 of at most 2 times"


def test_restarts_are_limited_within_any_period() -> None:
    budget = RestartBudget(lifetime=-1, per_period=1, period_s=60)
    assert budget.spend(0) == ""
    assert budget.spend(59.9) == "it was already started again 1 of at most 1 times in the last 60 s"
    assert budget.spend(60) == ""


def test_minus_one_means_no_limit() -> None:
    budget = RestartBudget(lifetime=-1, per_period=-1, period_s=60)
    assert [budget.spend(0.0) for _ in range(100)] == [""] * 100
