from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_trajectories import trajectories_of

from trainer_service.config.hyperparameters.off_policy import ActionValueSettings, NoiseSettings
from trainer_service.learning.algorithms.common.exploration import ActionNoise, EpsilonGreedy
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories


def lived(lengths: list[int], ended: list[bool] | None) -> Trajectories:
    seen = np.zeros((sum(lengths), 1), np.float32)
    return trajectories_of([seen], lengths, choices=2, ended=None if ended is None else np.array(ended))


def test_it_falls_over_steps_and_stays() -> None:
    exploration = EpsilonGreedy(ActionValueSettings(exploration_final=0.1, exploration_steps=100))
    found = []
    for _ in range(5):
        found.append(exploration.epsilon)
        exploration.record(lived([10, 20], [False, False]))
    assert found == pytest.approx([1.0, 0.73, 0.46, 0.19, 0.1])


def test_epsilon_falls_over_ended_episodes_and_not_over_segments() -> None:
    settings = ActionValueSettings(exploration_final=0.0, exploration_steps=4, exploration_unit="episodes")
    exploration = EpsilonGreedy(settings)
    exploration.record(lived([10, 20, 5], [True, False, True]))
    assert exploration.epsilon == pytest.approx(0.5)
    exploration.record(lived([10], [False]))
    assert exploration.epsilon == pytest.approx(0.5)
    other = EpsilonGreedy(settings)
    other.load_state_dict(exploration.state_dict())
    other.record(lived([1], [True]))
    assert other.epsilon == pytest.approx(0.25)


def test_who_does_not_say_what_ended_ends_nothing() -> None:
    exploration = EpsilonGreedy(ActionValueSettings(exploration_steps=1, exploration_unit="episodes"))
    unsaid = lived([3], [True])
    exploration.record(replace(unsaid, ended=None))
    assert exploration.epsilon == 1.0


def test_noise_drifts_on_from_what_an_agent_remembers() -> None:
    noise = ActionNoise(NoiseSettings(noise="ou", exploration_noise=0.1), 2, uniform_until=0)

    def perturbed(*remembered: float) -> Decisions:
        actions, memories = np.zeros((1, 2), np.float32), np.array([remembered], np.float32)
        decisions = Decisions(actions, np.zeros((1, 0), np.int64), np.zeros(1, np.float32), memories)
        return noise.perturb(decisions, torch.Generator().manual_seed(1))

    fresh, drifted = perturbed(7.0, 0.0, 0.0), perturbed(7.0, 1.0, -2.0)
    assert (drifted.memories - fresh.memories)[0] == pytest.approx([0.0, 0.85, -1.7])
    assert drifted.continuous_actions == pytest.approx(0.1 * drifted.memories[:, 1:])
