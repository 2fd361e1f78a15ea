from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from foreign_scenes import gymma_scene

from unity_bridge.simulators.scene import Scene, SceneError, Steps
from unity_bridge.steps import ActionBatch, StepBatch

ALL = "Foragers-v0?team=0"
OLD = "OldForagers?team=0"


def foragers(copies: int = 1, name: str = "Foragers-v0", **given: Any) -> Scene:
    ours = {key: given.pop(key) for key in ("common_reward", "steps", "with_state", "behaviors", "rendered")
            if key in given}  # fmt: skip
    return gymma_scene(f"foragers:{name}", copies, given, **ours)


def act(scene: Scene, steps: Steps, *choices: int) -> Steps:
    """Acts with a choice for each row that waits, the last of them for all that are left."""
    left = list(choices)
    actions = {}
    for behavior, batch in steps.items():
        rows = len(batch) - batch.num_terminal
        chosen = [left.pop(0) if len(left) > 1 else left[0] for _ in range(rows)]
        discrete = np.array(chosen, np.int32).reshape(rows, 1)
        actions[behavior] = ActionBatch(np.zeros((rows, 0), np.float32), discrete)
    return scene.step(actions)


def numbers(batch: StepBatch, what: str) -> Any:
    return getattr(batch, what).tolist()


def test_who_is_done_early_leaves_and_its_group_goes_on() -> None:
    scene = foragers(ends="each", limit=4)
    steps = act(scene, scene.reset(), 1)
    steps = act(scene, steps, 1)
    assert (numbers(steps[ALL], "agent_ids"), numbers(steps[ALL], "terminated")) == (
        [2, 0, 1],
        [True, False, False],
    )
    steps = act(scene, steps, 2)
    assert (numbers(steps[ALL], "agent_ids"), numbers(steps[ALL], "rewards")) == ([0, 1], [2, 3])
    steps = act(scene, steps, 1)
    assert numbers(steps[ALL], "agent_ids") == [0, 1, 0, 1, 2]


def test_a_single_reward_is_the_groups() -> None:
    scene = foragers(rewards="shared")
    [batch] = act(scene, scene.reset(), 2, 0, 1).values()
    assert not batch.rewards.any()
    assert numbers(batch, "group_rewards") == [6, 6, 6]


@pytest.mark.parametrize(("common", "paid"), [("sum", [6.0, 6.0]), ("mean", [2.0, 2.0])])
def test_a_common_reward_pays_the_group_for_all_its_agents(common: str, paid: list[float]) -> None:
    scene = foragers(ends="each", common_reward=common)
    steps = act(scene, scene.reset(), 2, 0, 1)
    steps = act(scene, steps, 0)
    steps = act(scene, steps, 1, 2)  # and 0 of the third, who is done, but stands there and earns 2
    assert numbers(steps[ALL], "agent_ids") == [0, 1]
    assert not steps[ALL].rewards.any()
    assert numbers(steps[ALL], "group_rewards") == paid


def test_state_is_the_environments_own_or_all_observations() -> None:
    scene = foragers(with_state=True)
    steps = scene.reset(3)
    assert steps[ALL].observations[1].tolist() == [[0, 3]] * 3
    scene = foragers(name="OldForagers", with_state=True)
    steps = scene.reset(3)
    assert steps[OLD].observations[1].tolist() == [[0, 0, 3, 0, 1, 3, 0, 2, 3]] * 3
    steps = act(scene, act(scene, steps, 0), 0)
    assert steps[OLD].observations[1].tolist() == [[0, 0, 0, 2, 1, 3, 2, 2, 3]] * 2, "the first is gone"


def test_the_older_interface_has_lists_of_dones_and_a_seed_of_its_own() -> None:
    scene = foragers(2, "OldForagers")
    steps = scene.reset(7)
    assert steps[OLD].observations[0][:, 2].tolist() == [7, 7, 7, 1007, 1007, 1007]
    steps = act(scene, steps, 2)
    assert numbers(steps[OLD], "agent_ids") == [0, 3, 1, 2, 4, 5]
    assert numbers(steps[OLD], "terminated") == [True, True, False, False, False, False]
    assert numbers(steps[OLD], "rewards") == [2.5, 2.5, 3.5, 4.5, 3.5, 4.5]
    steps = act(scene, act(scene, steps, 1), 1)
    assert numbers(steps[OLD], "agent_ids") == [1, 2, 4, 5, 0, 1, 2, 3, 4, 5]


def test_rows_of_one_array_are_agents_and_a_clock_that_says_so_truncates() -> None:
    scene = foragers(name="Stacked", limit=1)
    steps = scene.reset(7)
    [batch] = act(scene, steps, 0, 1, 2).values()
    assert numbers(batch, "rewards") == [0.5, 2.5, 4.5, 0, 0, 0]
    assert numbers(batch, "truncated") == [True] * 3 + [False] * 3
    assert not batch.terminated.any()


def test_an_end_of_all_at_the_clock_is_the_clocks_and_an_earlier_one_is_not() -> None:
    [batch] = act(scene := foragers(steps=1, limit=1), scene.reset(), 0).values()
    assert numbers(batch, "truncated") == [True] * 3 + [False] * 3
    [batch] = act(scene := foragers(steps=2, limit=1), scene.reset(), 0).values()
    assert numbers(batch, "terminated") == [True] * 3 + [False] * 3
    both = foragers(name="OldForagers", steps=1, limit=9)
    [batch] = act(both, both.reset(), 0).values()
    assert numbers(batch, "terminated")[:3] == [True, False, False], "one alone is done before the others"
    assert numbers(batch, "truncated")[:3] == [False, True, True]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"trouble": "step"}, r"step\(\) raised ValueError: spilt milk$"),
        (
            {"trouble": "rewards"},
            r"step\(\) raised TypeError: expected rewards of 3 agents, got \[0.0, 1.0\]$",
        ),
        ({"trouble": "return"}, r"step\(\) raised TypeError: expected observations, rewards, terminated, "),
        ({"beds": 3}, r"make\(\) raised TypeError: .*unexpected keyword argument 'beds'"),
    ],
)
def test_environment_errors_become_one_line(given: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=f"^gymma:foragers:Foragers-v0: {complaint}") as caught:  # noqa: PT012
        scene = foragers(**given)
        act(scene, scene.reset(), 0)
    assert "\n" not in str(caught.value)


def played(env: Any, seed: int, episodes: int, choose: Any) -> list[Sequence[float]]:
    """Returns of each agent, of the environment itself."""
    returns = []
    seen, _ = env.reset(seed=seed)
    for _ in range(episodes):
        total, over, step = np.zeros(len(seen)), False, 0
        while not over:
            seen, rewards, over, _, _ = env.step([choose(step, i) for i in range(len(seen))])
            total, step = total + rewards, step + 1
        returns.append(total.tolist())
        seen, _ = env.reset()
    return returns


@pytest.mark.parametrize(
    ("module", "name"), [("lbforaging", "Foraging-8x8-3p-3f-v3"), ("rware", "rware-tiny-2ag-easy-v2")]
)
def test_published_environments_are_played_as_they_are(module: str, name: str) -> None:
    pytest.importorskip(module, reason=f'{module} is not installed (pip install -e ".[gymma]")')
    import gymnasium

    def choose(step: int, agent: int) -> int:
        return int(np.random.default_rng([step, agent]).integers(5))

    kwargs = {"max_steps": 40} if module == "rware" else {}
    expected = played(gymnasium.make(name, disable_env_checker=True, **kwargs), 3, 3, choose)
    scene = gymma_scene(name, 1, kwargs)
    steps, behavior, returns = scene.reset(3), f"{name}?team=0", []
    total, step = np.zeros(len(expected[0])), 0
    while len(returns) < 3:
        agents = len(total)
        steps = act(scene, steps, *(choose(step, i) for i in range(agents)))
        batch, step = steps[behavior], step + 1
        total += batch.rewards[:agents]
        if batch.num_terminal:
            returns.append(total.tolist())
            total, step = np.zeros(agents), 0
    np.testing.assert_allclose(returns, expected, rtol=1e-6)
