"""Whole runs on rollout workers without processes: who collects what, what is learned from it, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from behavior_worlds import assert_equal_states, flat
from in_process_workers import SMALL_PPO, Finished, InProcessWorkers, learn_in_process, options_of
from pursuit_groups import PursuitGroups
from walkers import Walk, Walkers, walkers

from trainer_service.distributed import worker
from trainer_service.distributed.collection_quotas import Demand, quota_of
from trainer_service.running.metrics import MEMBER_REWARD
from unity_bridge.simulators.academy import Academy

REPLAY = {"batch_size": 16, "buffer_size": 1000, "buffer_init_steps": 40, "steps_per_update": 10}


ONE = walkers({"A?team=0": Walk()})


def states(run: Finished) -> dict[str, Any]:
    return flat({name: each.algorithm for name, each in run.checkpoints().items()})


def last_first(waiting: Sequence[int]) -> int:
    return max(waiting)


def test_quotas_add_up_and_go_by_worker_number(tmp_path: Path) -> None:
    run = learn_in_process(options_of({"A": SMALL_PPO}, distributed={"num_workers": 3}), ONE, tmp_path)
    rounds = [quota for _, quota in run.pool.asked if quota is not None and quota.steps]
    assert [quota.steps["A"] for quota in rounds[:6]] == [22, 21, 21, 22, 21, 21]
    assert [number for number, _ in run.pool.asked[:6]] == [0, 1, 2, 0, 1, 2]


def test_the_order_in_which_workers_answer_changes_no_bit(tmp_path: Path) -> None:
    options = options_of({"A": SMALL_PPO}, distributed={"num_workers": 3})
    forward = learn_in_process(options, ONE, tmp_path / "forward")
    backward = learn_in_process(options, ONE, tmp_path / "backward", arrival=last_first)
    assert [number for number, _ in forward.pool.answers[-3:]] == [0, 1, 2]
    assert [number for number, _ in backward.pool.answers[-3:]] == [2, 1, 0]
    assert_equal_states(states(forward), states(backward))


def test_pieces_in_which_a_quota_comes_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of({"A": {**SMALL_PPO, "trainer_type": "sac", "hyperparameters": REPLAY}})
    whole = learn_in_process(options, ONE, tmp_path / "whole")
    monkeypatch.setattr(worker, "REPORT_S", 0.0)
    pieces = learn_in_process(options, ONE, tmp_path / "pieces")
    assert len(pieces.pool.answers) > 2 * len(whole.pool.answers)
    assert whole.behaviors["A"].updates == pieces.behaviors["A"].updates > 0
    assert_equal_states(states(whole), states(pieces))


def test_two_resumes_of_one_checkpoint_are_equal(tmp_path: Path) -> None:
    options = options_of({"A": SMALL_PPO})
    half = learn_in_process(options, ONE, tmp_path / "half", turns=8)
    assert 0 < half.steps["A"] < 200
    one = learn_in_process(options, ONE, tmp_path / "one", resumed=half.checkpoints())
    other = learn_in_process(options, ONE, tmp_path / "other", resumed=half.checkpoints())
    assert one.steps == other.steps
    assert one.steps["A"] >= 200
    assert_equal_states(states(one), states(other))
    anew = learn_in_process(options, ONE, tmp_path / "anew")
    with pytest.raises(AssertionError):  # the world is resumed at its start, the policy is not
        assert_equal_states(states(one), states(anew))


def test_a_run_ends_with_its_exact_budget(tmp_path: Path) -> None:
    alone = walkers({"A?team=0": Walk(agents=1)})
    for workers, max_steps in ((1, 130), (2, 131), (3, 200)):
        options = options_of(
            {"A": {**SMALL_PPO, "max_steps": max_steps}}, distributed={"num_workers": workers}
        )
        assert learn_in_process(options, alone, tmp_path / str(workers)).steps == {"A": max_steps}


def test_a_budget_of_episodes_ends_a_run_with_the_round_that_fills_it(tmp_path: Path) -> None:
    settings = {**SMALL_PPO, "max_steps": 1000, "max_episodes": 20}
    options = options_of({"A": settings}, distributed={"num_workers": 2})
    run = learn_in_process(options, walkers({"A?team=0": Walk(agents=1)}), tmp_path)
    behavior = run.behaviors["A"]
    assert (behavior.step, behavior.episodes) == (
        140,
        28,
    )  # a round is 7 episodes of 5 steps from each worker


def test_environment_steps_of_workers_add_up_and_end_a_run_with_the_round_that_fills_them(
    tmp_path: Path,
) -> None:
    options = options_of(
        {"A": {**SMALL_PPO, "max_steps": 1000}}, distributed={"num_workers": 2}, max_env_steps=100
    )
    run = learn_in_process(options, walkers({"A?team=0": Walk(agents=2)}), tmp_path)
    assert run.behaviors.env_steps.taken == run.behaviors["A"].step / 2
    assert 100 <= run.behaviors.env_steps.taken < 140
    assert run.behaviors["A"].updates == run.behaviors["A"].step // 64


A, B = "A?team=0", "B?team=0"
EARLY = {**SMALL_PPO, "max_steps": 40}


def test_behaviors_finish_at_their_own_budgets(tmp_path: Path) -> None:
    both = walkers({A: Walk(agents=1), B: Walk(agents=1)})
    run = learn_in_process(options_of({"A": SMALL_PPO, "B": EARLY}), both, tmp_path)
    assert run.steps["A"] == 200
    assert run.steps["B"] >= 40
    assert not any("B" in quota.steps for _, quota in run.pool.asked[-2:] if quota is not None)


def test_a_behavior_that_no_worker_has_any_more_is_not_waited_for(tmp_path: Path) -> None:
    gone: list[bool] = []

    def kill(pool: InProcessWorkers) -> None:
        if len(pool.answers) > 8 and 1 in pool.workers:
            pool.kill(1)
        gone.append(1 not in pool.workers)

    worlds = walkers({A: Walk(agents=1)}, {B: Walk(agents=1)})
    run = learn_in_process(
        options_of({"A": SMALL_PPO, "B": {**SMALL_PPO, "max_steps": 10**6}}),
        worlds, tmp_path, before_wait=kill, absence_timeout_s=0.0,
    )  # fmt: skip
    assert gone[-1]
    assert run.steps["A"] == 200
    assert 0 < run.steps["B"] < 200


def test_every_simulator_of_the_run_has_a_seed_of_its_own(tmp_path: Path) -> None:
    seeds: dict[int, list[int]] = {}

    def scenes(number: int, academy: Academy) -> Walkers:
        world = Walkers({"A?team=0": Walk(agents=1)}, academy)
        begin = world.reset

        def reset(seed: int | None = None) -> Any:
            if seed is not None:
                seeds.setdefault(number, []).append(seed)
            return begin(seed)

        world.reset = reset  # type: ignore[method-assign]
        return world

    environment = {"env_path": "sim:basic", "seed": 40, "num_envs": 3}
    run = learn_in_process(options_of({"A": SMALL_PPO}, env_settings=environment), scenes, tmp_path)
    assert seeds == {number: [40 + number] for number in range(6)}
    assert 200 <= run.steps["A"] < 200 + 6


def test_random_numbers_of_workers_and_of_rounds_differ(tmp_path: Path) -> None:
    """Simulators of one seed would play the same episodes if actions were drawn alike."""

    def scenes(number: int, academy: Academy) -> Walkers:
        world = Walkers({"A?team=0": Walk(agents=1, length=1)}, academy)
        begin = world.reset
        world.reset = lambda seed=None: begin(7)  # type: ignore[method-assign]
        return world

    settings = {**SMALL_PPO, "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": False}}
    run = learn_in_process(options_of({"A": settings}), scenes, tmp_path)
    parts = [each.discrete_actions[:, 0] for each in run.trajectories()]
    assert len(parts) >= 6
    drawn = {tuple(part[:32]) for part in parts if len(part) >= 32}
    assert len(drawn) == sum(len(part) >= 32 for part in parts) >= 6
    assert np.concatenate(parts).any()


def test_a_run_that_only_acts_lets_all_teams_act_as_the_newest_policy(tmp_path: Path) -> None:
    settings = {**SMALL_PPO, "self_play": {"save_steps": 20, "team_change": 40, "swap_steps": 10}}
    teams = walkers({"A?team=0": Walk(agents=1), "A?team=1": Walk(agents=1)})
    run = learn_in_process(options_of({"A": settings}), teams, tmp_path, learns=False, turns=9)
    assert run.behaviors["A"].updates == 0
    assert {batch.team for batch in run.batches()} == {0, 1}
    assert run.steps["A"] > 100
    assert all(not request.policies["A"].opponents for request in run.pool.requests[1:])


def test_workers_collect_for_a_team(tmp_path: Path) -> None:
    # The second worker's groups are smaller.
    hyper = {"batch_size": 18, "buffer_size": 72, "share": "none"}
    settings = {**SMALL_PPO, "trainer_type": "mappo", "hyperparameters": hyper, "summary_freq": 10**6}
    options = options_of({"Pursuit": settings}, teams={"Pursuit": ["Leader", "Runner"]})
    finished = learn_in_process(options, lambda number, academy: PursuitGroups(2 - number), tmp_path)
    behavior = finished.behaviors["Pursuit"]
    assert list(finished.behaviors) == ["Pursuit"]
    assert behavior.step >= 200
    assert behavior.updates >= 2
    assert [member.num_agents for member in behavior.spec.members] == [1, 2]
    series = behavior.partial_summary(0.0).series
    leader, runner = (series[f"{MEMBER_REWARD}{name}"] for name in ("Leader", "Runner"))
    assert runner.count == pytest.approx(1.5 * leader.count, abs=3)


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
