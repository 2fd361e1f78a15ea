from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from unity_bridge.side_channels import Aggregation, parse_stat, unpack_records
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.spread import BEHAVIOR, EXPERT_RETURN, Spread
from unity_bridge.simulators.scene import choices
from unity_bridge.steps import ActionBatch, StepBatch


def play(scene: Spread, actions: Sequence[ActionBatch]) -> list[StepBatch]:
    return [scene.step({BEHAVIOR: batch})[BEHAVIOR] for batch in actions]


def statistics(academy: Academy) -> dict[str, list[float]]:
    steps: dict[str, list[float]] = {}
    for record in unpack_records(academy.outgoing()):
        stat = parse_stat(record.body)
        assert stat.aggregation is Aggregation.AVERAGE
        steps.setdefault(stat.name, []).append(stat.value)
    return steps


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(("agents", "steps", "seed"), [(3, 50, 1), (5, 25, 3)])
def test_steps_equal_those_of_mpe2(agents: int, steps: int, seed: int, continuous: bool) -> None:
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3", reason="mpe2 is not installed")
    theirs = simple_spread.parallel_env(N=agents, max_cycles=steps, continuous_actions=continuous)
    ours = Spread(1, agents, steps, continuous)
    rng = np.random.default_rng(seed)
    batches = ours.reset(seed)[BEHAVIOR]
    seen, _ = theirs.reset(seed=seed)
    for episode in range(3):
        # Only the first is seeded: what follows goes on with the same random numbers.
        if episode:
            seen, _ = theirs.reset()
        for step in range(1, steps + 1):
            np.testing.assert_allclose(batches.observations[0][-agents:], list(seen.values()), atol=1e-6)
            batch, action = random_action(rng, agents, continuous=continuous)
            batches = ours.step({BEHAVIOR: batch})[BEHAVIOR]
            seen, earned, terminated, truncated, _ = theirs.step(
                dict(zip(theirs.agents, action, strict=True))
            )
            np.testing.assert_allclose(batches.rewards[:agents], list(earned.values()), rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(batches.observations[0][:agents], list(seen.values()), atol=1e-6)
            assert not any(terminated.values())
            assert all(truncated.values()) == (batches.num_terminal == agents) == (step == steps)


def random_action(
    rng: np.random.Generator, agents: int, *, continuous: bool
) -> tuple[ActionBatch, Sequence[object]]:
    """Starts both worlds, ours and mpe2's, alike."""
    if not continuous:
        chosen = rng.integers(5, size=agents)
        return choices(chosen), chosen.tolist()
    numbers = rng.uniform(-1.2, 1.2, (agents, 5)).astype(np.float32)
    batch = ActionBatch(numbers, np.zeros((agents, 0), np.int32))
    return batch, list((np.clip(numbers.astype(np.float64), -1, 1) + 1) / 2)


@pytest.mark.parametrize(("agents", "steps"), [(2, 10), (4, 30)])
def test_the_statistics_are_the_returns_in_both_conventions(agents: int, steps: int) -> None:
    academy = Academy()
    scene = Spread(8, agents, steps, academy=academy)
    scene.reset(1)
    rng = np.random.default_rng(1)
    batches = play(scene, [choices(rng.integers(5, size=8 * agents)) for _ in range(steps)])
    mean_return = sum(float(batch.rewards[: 8 * agents].mean()) for batch in batches)
    values = {name: value for name, (value,) in statistics(academy).items()}
    assert values["Spread/C"] > 0
    assert values["Spread/P"] == pytest.approx(mean_return, abs=1e-4)
    assert values["Spread/S"] == pytest.approx(2 * agents * values["Spread/P"] - agents * steps, abs=1e-3)


@pytest.mark.parametrize("continuous", [False, True])
def test_expert_return_is_as_documented(continuous: bool) -> None:
    scene = Spread(copies=600, continuous=continuous)
    scene.reset(0)
    earned = [scene.step(scene.expert())[BEHAVIOR].rewards[:1800].mean() for _ in range(25)]
    assert sum(earned) == pytest.approx(EXPERT_RETURN, abs=0.35)
