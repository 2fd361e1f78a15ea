from __future__ import annotations

import copy

import torch

from trainer_service.learning.rewards import Experience
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")
SPEC = BehaviorSpec((ObservationSpec("vector", (4,)),), ActionSpec(2, ()))


def test_the_target_never_changes_and_the_predictor_comes_closer(make_source, make_trajectories) -> None:
    source = make_source("rnd", SPEC, learning_rate=1e-2)
    transitions = Experience(make_trajectories(SPEC, [8]), CPU).take(slice(None))
    before = copy.deepcopy(source.state_dict()["network"])
    losses = [float(source.learn(transitions)["Losses/RND Loss"]) for _ in range(100)]
    after = source.state_dict()["network"]
    assert losses[-1] < 0.3 * losses[0]
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in after if name.startswith("predictor")}


def test_a_step_pays_for_what_it_led_to(make_source, make_trajectories) -> None:
    # Also the last of an episode: reaching what nobody has seen is worth something even if all ends there.
    source = make_source("rnd", SPEC)
    trajectories = make_trajectories(SPEC, [3])
    experience = Experience(trajectories, CPU)
    source.learn(experience.take(slice(None)))
    before = source.record(experience)
    trajectories.final_observations[0][:] += 50.0
    after = source.record(experience)
    assert (after[:2] == before[:2]).all()
    assert after[2] > 10.0 * before[2]
