"""The simulators of rollout workers: their seeds, what they say, and what becomes of one that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from in_process_workers import SMALL_PPO, learn_in_process, options_of
from walkers import Walk, Walkers, walkers

from unity_bridge.simulators.academy import Academy

ONE = {"A?team=0": Walk(agents=1)}


def test_every_simulator_of_the_run_has_a_seed_of_its_own(tmp_path: Path) -> None:
    seeds: dict[int, list[int]] = {}

    def scenes(number: int, academy: Academy) -> Walkers:
        world = Walkers(ONE, academy)
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
    parts = [
        batch.trajectories.discrete_actions[:, 0]
        for _, answer in run.pool.answers
        for _, batch in answer.batches
        if batch.trajectories is not None
    ]
    assert len(parts) >= 6
    drawn = {tuple(part[:32]) for part in parts if len(part) >= 32}
    assert len(drawn) == sum(len(part) >= 32 for part in parts) >= 6
    assert np.concatenate(parts).any()


def test_a_run_that_only_acts_lets_all_teams_act_as_the_newest_policy(tmp_path: Path) -> None:
    settings = {**SMALL_PPO, "self_play": {"save_steps": 20, "team_change": 40, "swap_steps": 10}}
    teams = walkers({"A?team=0": Walk(agents=1), "A?team=1": Walk(agents=1)})
    run = learn_in_process(options_of({"A": settings}), teams, tmp_path, learns=False, turns=9)
    assert run.behaviors["A"].updates == 0
    teams_seen = {batch.team for _, answer in run.pool.answers for _, batch in answer.batches}
    assert teams_seen == {0, 1}
    assert run.steps["A"] > 100
    assert all(not request.policies["A"].opponents for request in run.pool.requests[1:])
