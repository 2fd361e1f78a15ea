"""Tests of the plugins. They need nothing but trainer-service, this distribution and pytest."""

from __future__ import annotations

import numpy as np
import torch
from example_plugin.encoder import SmallCNN
from example_plugin.simulator import BEHAVIOR, open_hotcold

from trainer_service import parse_run_options
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.algorithms.common.actor import ActRequest
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch


def test_the_trainer_finds_the_algorithm() -> None:
    behavior = {"trainer_type": "a2c", "hyperparameters": {"beta": 0.02}}
    options = parse_run_options({"behaviors": {"Ball": behavior}}).options
    spec = BehaviorSpec((ObservationSpec("numbers", (3,)),), ActionSpec(1, (2,)))
    learner = make_learner(spec, options.behavior_settings("Ball"), Compute(torch.device("cpu"), 1))
    seen = [np.zeros((5, 3), np.float32)]
    decisions = learner.actor.act(ActRequest(seen, np.ones((5, 2), np.bool_), np.zeros((5, 0), np.float32)))
    assert decisions.continuous_actions.shape == (5, 1)
    assert decisions.discrete_actions.shape == (5, 1)


def test_the_encoder_takes_pictures_of_any_size() -> None:
    for height, width in ((4, 4), (9, 30)):
        assert SmallCNN((3, height, width), 7)(torch.zeros(2, 3, height, width)).shape == (2, 7)


def test_the_best_guess_earns_most() -> None:
    scene = open_hotcold("1", agents=50, academy=None, env_kwargs={}, rendered=False)
    scene.reset(3)
    high = scene.step({BEHAVIOR: ActionBatch(np.ones((50, 1), np.float32), np.zeros((50, 0), np.int32))})
    batch = high[BEHAVIOR]
    assert set(batch.rewards.tolist()) == {0.0, -2.0}
    assert (batch.observations[0][:, 1] == np.where(batch.rewards == 0.0, 0.0, 1.0)).all()
