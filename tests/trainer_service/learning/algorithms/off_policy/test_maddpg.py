"""How MADDPG explores, and how its exported model acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from behavior_worlds import begin_world, run_ticks
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop.onnx_export import to_onnx
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec

AGENTS, COPIES = 2, 3
KINDS = {"choices": (0, (3,)), "numbers": (2, ()), "both": (1, (2, 3))}


def world(kind: str) -> ShortEpisodes:
    continuous, branches = KINDS[kind]
    return ShortEpisodes(ActionSpec(continuous, branches), AGENTS * COPIES)


@pytest.fixture
def learner(small) -> Callable[..., Behavior]:
    def make(kind: str, **changes: Any) -> Behavior:
        continuous, branches = KINDS[kind]
        body = {"sizes": (SENSOR,), "continuous": continuous, "branches": branches, "normalize": True}
        sizes = {"batch_size": 8, "buffer_size": 40, "steps_per_update": 6, "group_size": AGENTS}
        made: Behavior = small("maddpg", **body, **sizes, **changes)
        return made

    return make


@pytest.mark.parametrize(("kind", "share"), [("choices", "none"), ("numbers", "full"), ("both", "none")])
def test_its_model_acts_as_its_policy_does(learner, kind: str, share: str) -> None:
    behavior = learner(kind, share=share, agent_ids=True)
    run_ticks(behavior, *begin_world(behavior, world(kind)), 12)
    checkpoint = checkpoint_of(behavior)
    chance = torch.Generator().manual_seed(1)
    # Far enough out to tell agents and choices apart.
    for parameter in checkpoint.algorithm["actors"].values():
        parameter.add_(torch.randn(parameter.shape, generator=chance), alpha=0.5)
    policy = Policy(checkpoint)
    assert policy.num_agents == AGENTS
    rng, rows = np.random.default_rng(1), 64
    seen, agent_indices = (
        rng.normal(scale=9.0, size=(rows, SENSOR)).astype(np.float32),
        rng.integers(AGENTS, size=rows),
    )
    choices = policy.spec.action_spec.mask_size
    allowed = np.ones((rows, choices), np.bool_)
    allowed[:, 1:2] = seen[:, :1] > 0
    inputs: dict[str, Any] = {"obs_0": seen, "obs_1": np.eye(AGENTS, dtype=np.float32)[agent_indices]}
    if choices:
        inputs["action_masks"] = allowed.astype(np.float32)
    session = onnxruntime.InferenceSession(to_onnx(policy.network(), policy.inputs))
    names = [each.name for each in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, inputs), strict=True))
    ours = policy.act(seen, allowed, agent_indices=agent_indices)
    if policy.spec.action_spec.continuous_size:
        assert np.ptp(ours.continuous) > 0.2
        for which in ("continuous_actions", "deterministic_continuous_actions"):
            np.testing.assert_allclose(outputs[which], ours.continuous, atol=1e-5)
    if choices:
        np.testing.assert_array_equal(outputs["deterministic_discrete_actions"], ours.discrete)
        assert len(np.unique(ours.discrete, axis=0)) > 1
    swapped = policy.act(seen, allowed, agent_indices=1 - agent_indices)
    assert (swapped.continuous != ours.continuous).any() or (swapped.discrete != ours.discrete).any()


def test_choices_are_sampled_and_numbers_get_noise_while_learning(learner) -> None:
    behavior = learner("both", exploration_noise=0.2)
    run_ticks(behavior, *begin_world(behavior, world("both")), 12)
    rows = 4000
    seen, who = np.full((rows, SENSOR), 0.3, np.float32), np.tile(np.float32([1, 0]), (rows, 1))
    allowed = np.ones((rows, 5), np.bool_)
    allowed[:, 3] = False
    algorithm, nothing = behavior.learner, np.zeros((rows, 0), np.float32)
    drawn = algorithm.actor.act(ActRequest([seen, who], allowed, nothing))
    surely = algorithm.actor.act(ActRequest([seen, who], allowed, nothing, True))
    assert (drawn.continuous_actions - surely.continuous_actions).std() == pytest.approx(0.2, abs=0.02)
    with torch.inference_mode():
        inputs = algorithm.actor.normalizer.forward([torch.from_numpy(each[:1]) for each in (seen, who)])
        logits = algorithm.networks["actors"].policy(inputs).logits[0]
    assert drawn.discrete_actions[:, 0].mean() == pytest.approx(logits[:2].softmax(0)[1].item(), abs=0.04)
    of_two = logits[[2, 4]].softmax(0)[1].item()
    assert set(drawn.discrete_actions[:, 1].tolist()) == {0, 2}
    assert (drawn.discrete_actions[:, 1] == 2).mean() == pytest.approx(of_two, abs=0.04)
    policy = Policy(checkpoint_of(behavior))
    calm = policy.act(seen, allowed, agent_indices=np.zeros(rows, int), deterministic=False)
    np.testing.assert_allclose(calm.continuous, surely.continuous_actions, atol=1e-6)
