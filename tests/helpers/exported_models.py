"""Compares exported models with the policies that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from trainer_service.policy import Policy

ROWS = 20


def assert_model_acts_as_policy(path: Path, policy: Policy, *, draws: bool = True) -> None:
    """Asserts equal actions for random observations of two agents a group, with all and with some actions allowed.

    With memory, in every step of a short episode, and equal memories after it. draws: whether the policy draws its
    actions; if not, what the model calls drawn must be the policy's action too.
    """
    session, rng = onnxruntime.InferenceSession(path), np.random.default_rng(1)
    actions = policy.spec.action_spec
    own = [
        rng.normal(size=(ROWS, *sensor.shape)).astype(np.float32) for sensor in policy.spec.observation_specs
    ]
    agents: dict[str, Any] = {}
    inputs = dict(zip((f"obs_{index}" for index in range(len(own))), own, strict=True))
    if policy.num_agents:
        indices = np.arange(ROWS) % policy.num_agents
        agents["agent_indices"] = indices
        if policy.communicates:
            agents["groups"] = np.arange(ROWS) // policy.num_agents
            (mine,) = own
            of_group = mine.reshape(ROWS // policy.num_agents, -1)
            inputs[f"obs_{len(inputs)}"] = np.repeat(of_group, policy.num_agents, axis=0)
        inputs[f"obs_{len(inputs)}"] = np.eye(policy.num_agents, dtype=np.float32)[indices]

    memories = np.zeros((ROWS, policy.memory_size), np.float32)

    def acts(allowed: np.ndarray | None) -> np.ndarray:
        nonlocal memories
        ours, kept = policy.predict(own, memories, allowed, **agents)
        kinds = {"continuous": ours.continuous} if actions.continuous_size else {}
        kinds |= {"discrete": ours.discrete} if actions.mask_size else {}
        feed = dict(inputs)
        if actions.mask_size:
            every = np.ones((ROWS, actions.mask_size), np.float32)
            feed["action_masks"] = every if allowed is None else allowed.astype(np.float32)
        if policy.memory_size:
            feed["recurrent_in"] = memories[:, None]
            (recurrent,) = session.run(["recurrent_out"], feed)
            np.testing.assert_allclose(recurrent[:, 0], kept, atol=1e-5)
        for kind, expected in kinds.items():
            names = [f"deterministic_{kind}_actions", *([] if draws else [f"{kind}_actions"])]
            for theirs in session.run(names, feed):
                np.testing.assert_allclose(theirs, expected, atol=1e-5)
        memories = kept
        return ours.discrete

    chosen = acts(None)
    if policy.memory_size:
        acts(None)
    elif actions.mask_size:
        forbidden = np.ones((ROWS, actions.mask_size), np.bool_)
        forbidden[np.arange(ROWS), chosen[:, 0]] = False
        assert (acts(forbidden)[:, 0] != chosen[:, 0]).all()
