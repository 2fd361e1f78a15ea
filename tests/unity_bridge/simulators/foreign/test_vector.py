"""Vector environments: copies in processes, and what cannot be served (test_matrix.py holds what arrives)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from foreign_scenes import open_gym
from gym_lab import Lap
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeObservation

from unity_bridge.simulators.foreign.gymnasium import AGENT
from unity_bridge.simulators.foreign.open import _vector_copies
from unity_bridge.simulators.foreign.vector import VectorCopies
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.steps import ActionBatch


def opened(name: str, agents: int | None, options: dict[str, Any] | None = None, **kwargs: Any) -> Scene:
    return open_gym(name, agents, kwargs, options or {}, rendered=False)


def lived(scene: Scene, steps: int) -> dict[int, list[list[float]]]:
    """What each agent saw and earned, row by row. It does what its mask allows, by turns."""
    [behavior] = scene.behaviors
    rows: dict[int, list[list[float]]] = {}
    batch = scene.reset(1000)[behavior]
    for _ in range(steps):
        seen = batch.observations[0]
        for row, agent in enumerate(batch.agent_ids.tolist()):
            rows.setdefault(agent, []).append([*seen[row].tolist(), float(batch.rewards[row])])
        chosen = [
            int(np.flatnonzero(batch.allowed_actions[row])[-1 - int(seen[row, 0]) % 2])
            for row in range(batch.num_terminal, len(batch))
        ]
        actions = ActionBatch(np.zeros((len(chosen), 0), np.float32), np.array(chosen, np.int32)[:, None])
        batch = scene.step({behavior: actions})[behavior]
    scene.close()
    return rows


@pytest.mark.process
def test_copies_in_processes_may_have_a_space_of_a_librarys_own(act) -> None:
    scene = opened("gym_lab:Talker", 2, {"vector": "async"}, says="go left")
    scene.reset(0)
    batch = scene.step(act("Talker?team=0", discrete=[[0], [1]]))["Talker?team=0"]
    assert batch.observations[0].tolist() == [[1, 0], [1, 0]]
    scene.close()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore")  # Gymnasium says by warnings what became of its processes
def test_an_exception_in_a_process_is_one_line() -> None:
    scene = opened("gym_lab:lap", 2, {"vector": "async"}, bonus="much")
    with pytest.raises(SceneError, match=r"^gym:gym_lab:lap: step\(\) raised TypeError: unsupported operand"):
        lived(scene, 3)
    scene.close()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore")
def test_a_process_that_is_gone_is_named() -> None:
    scene = opened("gym_lab:lap", 2, {"vector": "async", "wrap": ["gym_lab:quitter"]})
    with pytest.raises(SceneError, match=r"the process of copy [01] ended by itself, with exit code 7$"):
        lived(scene, 6)
    scene.close()


def test_the_environments_own_vector_implementation_is_used() -> None:
    scene = opened("CartPole-v1", 3, {"vector": "vector_entry_point"})
    assert lived(scene, 40).keys() == {0, 1, 2}


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        (
            "gym_lab:two_laps",
            {},
            r"--agents 3: a vector environment of 2 was made; give the function .* num_envs",
        ),
        ("gym_lab:laps", {"wrap": ["ClipReward:-1,1"]}, "--wrap ClipReward:-1,1: it is a vector environment"),
        ("gym_lab:laps", {"vector": "async"}, "--vector async: it is a vector environment already"),
        (
            "gym_lab:lap",
            {"vector": "vector_entry_point"},
            "vector_entry_point is for ids that are registered",
        ),
        ("Pendulum-v1", {"vector": "vector_entry_point"}, "doesn't have a vector entry point"),
    ],
)
def test_what_does_not_fit_a_vector_environment_is_named(name: str, options: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=f"^gym:{name}: .*{complaint}"):
        opened(name, 3, options)


def test_a_vector_environment_that_normalizes_is_refused() -> None:
    env = NormalizeObservation(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))
    with pytest.raises(SceneError, match="gym:Mine: NormalizeObservation: its statistics"):
        _vector_copies(ForeignCode("gym:Mine"), env, None, (), "")
    env.close()


def test_a_vector_environment_must_say_how_it_begins_anew() -> None:
    with pytest.raises(SceneError, match=r"must say in metadata\['autoreset_mode'\] .* got None$"):
        opened("gym_lab:SilentLaps", 2, says_how=False)


def test_an_episode_without_its_last_observation_is_refused() -> None:
    with pytest.raises(SceneError, match=r"left no last observation; expected info\['final_obs'\]$"):
        lived(opened("gym_lab:SilentLaps", 2), 9)


class Generous(SyncVectorEnv):
    """Pays for every step, also for one that only begins the next episode."""

    def step(self, actions: Any) -> Any:
        seen, _, *others = super().step(actions)
        return seen, np.ones(self.num_envs), *others


def test_a_step_that_only_begins_an_episode_pays_nothing() -> None:
    copies = VectorCopies(Generous([Lap] * 2), ForeignCode("gym:Mine"))
    copies.reset(0)  # two steps for copy 0, three for copy 1
    for _ in range(2):
        ended, _ = copies.step([{AGENT: 5}] * 2)
    assert [(row.copy, row.step.reward) for row in ended] == [(0, 1.0)]
    _, waiting = copies.step([{}, {AGENT: 5}])
    assert [(row.copy, row.step.reward) for row in waiting][:1] == [(0, 0.0)]
    copies.close()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_last_observation_of_a_truncation_has_its_mask(mode: AutoresetMode) -> None:
    copies = VectorCopies(SyncVectorEnv([Lap] * 2, autoreset_mode=mode), ForeignCode("gym:Mine"))
    copies.reset(0)  # copy 1 is truncated after three steps, when it may not do the last action
    for _ in range(3):
        ended, _ = copies.step([{AGENT: 5}] * 2)
    assert [(row.copy, row.step.truncated, list(row.step.mask)) for row in ended] == [(1, True, [1, 1, 0])]
    copies.close()
