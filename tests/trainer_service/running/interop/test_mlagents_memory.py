"""A recurrent policy that the real ML-Agents trainer wrote; see mlagents_runs/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.config import TrainerSettings, load_run_options
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import PPO, Compute
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.running.interop.mlagents_checkpoint import convert_checkpoint, load_source
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import Checkpoint
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

FOLDER = Path(__file__).parents[2] / "mlagents_runs" / "hallway"
SPEC = BehaviorSpec((ObservationSpec("rays", (30,)),), ActionSpec(0, (5,)))


@pytest.fixture(scope="module")
def expected() -> Mapping[str, np.ndarray]:
    """40 steps of 3 agents, and what ML-Agents' networks made of them."""
    with np.load(FOLDER / "expected.npz") as arrays:
        return dict(arrays)


def settings(**network: Any) -> TrainerSettings:
    plain = load_run_options(FOLDER / "configuration.yaml").options.behavior_settings("Hallway").model_dump()
    plain["network_settings"].update(network)
    return TrainerSettings.model_validate(plain)


def converted(**network: Any) -> Checkpoint:
    source = load_source(FOLDER / "Hallway" / "checkpoint.pt")
    return convert_checkpoint(source, "Hallway", SPEC, settings(**network), seed=3).checkpoint


def assert_decides_as_expected(policy: Policy, expected: Mapping[str, np.ndarray]) -> None:
    memories = None
    for step, observations in enumerate(expected["obs"]):
        actions, memories = policy.predict(observations, memories, expected["masks"][step] > 0)
        np.testing.assert_array_equal(actions.discrete, expected["discrete"][step])
        # Cell states are not bounded: by the end some are beyond 20.
        np.testing.assert_allclose(memories, expected["memories"][step], atol=1e-5, rtol=1e-6)


def test_it_decides_and_remembers_as_the_original_does(expected) -> None:
    assert_decides_as_expected(Policy(converted()), expected)
    # A check that any policy would pass proves nothing about this one.
    assert np.ptp(expected["discrete"]) > 0
    assert np.ptp(expected["memories"], axis=(0, 1)).min() > 1e-2


def test_the_recurrent_critic_equals_the_original_over_a_sequence(expected) -> None:
    ppo = PPO(SPEC, settings(), Compute(torch.device("cpu"), 0))
    ppo.load_state_dict(converted().algorithm)
    steps, agents = expected["obs"].shape[:2]
    by_agent = torch.from_numpy(expected["obs"].transpose(1, 0, 2).reshape(steps * agents, -1).copy())
    sequences = Sequences(
        torch.zeros(agents, ppo.actor.memory_size), torch.ones(agents, steps, dtype=torch.bool)
    )
    with torch.inference_mode():
        _, values = ppo.actor.network.policy_and_values(ppo.actor.normalizer([by_agent]), sequences)
    np.testing.assert_allclose(values.numpy().reshape(agents, steps).T, expected["value"], atol=1e-5)


def test_adams_moments_of_memories_are_mapped_to_their_tensors() -> None:
    content = torch.load(FOLDER / "Hallway" / "checkpoint.pt", weights_only=True)
    state = converted().algorithm
    ppo = PPO(SPEC, settings(), Compute(torch.device("cpu"), 0))
    start, places = 0, {}
    for name, parameter in ppo.actor.network.named_parameters():
        places[name] = slice(start, start := start + parameter.numel())
    # Six constants, two tensors of the body, then W, U, b and b' of the actor's memory.
    for number, name in enumerate(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), start=8):
        theirs = content["Optimizer:value_optimizer"]["state"][number]["exp_avg"]
        ours = state["optimizer"]["mean"][places[f"actor.memory.lstm.{name}_l0"]]
        assert torch.equal(ours, theirs.flatten())


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (None, "was trained with a memory_size of 12, the configuration has none"),
        ({"memory_size": 16}, "was trained with a memory_size of 12, the configuration says 16"),
        (
            {"memory_size": 12, "type": "gru"},
            "remembers with an lstm, the configuration says memory.type 'gru'",
        ),
    ],
)
def test_another_memory_than_the_files_is_named(memory: Any, message: str) -> None:
    if memory is not None:
        memory = {"sequence_length": 16, **memory}
    with pytest.raises(UserError, match=message):
        converted(memory=memory)
