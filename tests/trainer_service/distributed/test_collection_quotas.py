"""Division of the wanted steps among workers."""

from __future__ import annotations

from pathlib import Path

from in_process_workers import learn_in_process, options_of
from walkers import Walk, Walkers

from trainer_service.distributed.collection_quotas import Demand, quota_of


def budgets(left: int, workers: int, at_once: int, *, bounded: bool = False) -> list[int]:
    """What each worker may count of what is left."""
    numbers = list(range(workers))
    demand = {"A": Demand(steps=6, left=left, at_once=at_once)}
    quotas = [quota_of(demand, {"A": numbers}, number, 0, bounded=bounded) for number in numbers]
    return [0 if quota is None else quota.budget["A"] for quota in quotas]


def test_quotas_of_what_is_left_are_whole_ticks() -> None:
    assert budgets(36, 2, 12) == [24, 12]
    assert budgets(12, 3, 12) == [12, 0, 0]
    assert budgets(7, 3, 1) == [3, 2, 2]
    assert budgets(30, 2, 12) == [24, 12]  # less than a tick too much, as without workers
    assert budgets(1000, 2, 5, bounded=True) == [15, 15]  # 4 × 3, and whole ticks


def test_agents_that_act_together_end_with_the_exact_budget(tmp_path: Path) -> None:
    workers, max_steps = 4, 123
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 16, "buffer_size": 64, "learning_rate_schedule": "constant"},
        "network_settings": {"hidden_units": 8, "num_layers": 1},
        "max_steps": max_steps,
        "time_horizon": 8,
    }
    options = options_of({"A": settings}, distributed={"num_workers": workers})
    run = learn_in_process(
        options, lambda n, academy: Walkers({"A?team=0": Walk(agents=3)}, academy), tmp_path
    )
    assert run.steps == {"A": max_steps}
