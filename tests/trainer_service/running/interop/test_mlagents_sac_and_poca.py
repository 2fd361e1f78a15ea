"""Policies of every kind that ML-Agents wrote, and the networks of its SAC and POCA; see mlagents_runs/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from trainer_service.config import TrainerSettings, load_run_options
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.running.interop.mlagents_checkpoint import (
    Conversion,
    convert_checkpoint,
    load_mlagents_checkpoint,
)
from trainer_service.running.interop.mlagents_results import import_results, spec_of
from trainer_service.running.policy import Policy, load_policy

RUNS = Path(__file__).parents[2] / "mlagents_runs"
BEHAVIORS: Mapping[str, str] = {
    "hybrid": "Hybrid", "camera": "Camera Car", "hallway": "Hallway", "soft": "Hybrid", "soft_memory": "Hybrid",
    "groups": "PushBlockCollab",
}  # fmt: skip
every_run = pytest.mark.parametrize("run", BEHAVIORS)


def file_of(run: str) -> Path:
    return RUNS / run / BEHAVIORS[run] / "checkpoint.pt"


def settings_of(run: str) -> TrainerSettings:
    return load_run_options(RUNS / run / "configuration.yaml").options.behavior_settings(BEHAVIORS[run])


def converted(run: str, **changes: Any) -> Conversion:
    settings = TrainerSettings.model_validate(settings_of(run).model_dump() | changes)
    source = load_mlagents_checkpoint(file_of(run))
    spec = spec_of(RUNS / run / f"{BEHAVIORS[run]}.onnx", source, settings)
    return convert_checkpoint(source, BEHAVIORS[run], spec, settings, seed=3)


def expected_of(run: str) -> dict[str, np.ndarray]:
    with np.load(RUNS / run / "expected.npz") as arrays:
        return dict(arrays)


def loaded_learner(run: str) -> Any:
    checkpoint = converted(run).checkpoint
    learner = make_learner(checkpoint.spec, checkpoint.settings, Compute(torch.device("cpu"), 0))
    learner.load_state_dict(checkpoint.algorithm)
    return learner


@every_run
def test_the_imported_policy_equals_the_model_that_ml_agents_exported(run: str, tmp_path: Path) -> None:
    policy = load_policy(import_results(RUNS / run, "new", results_dir=tmp_path).folder)
    session = onnxruntime.InferenceSession(RUNS / run / f"{BEHAVIORS[run]}.onnx")
    outputs = {output.name for output in session.get_outputs()}
    rng, rows, choices = np.random.default_rng(7), 1 if policy.memory_size else 30, set[int]()
    memories, recurrent = None, np.zeros((1, 1, policy.memory_size), np.float32)
    for _ in range(30 // rows):
        seen = [
            rng.normal(size=(rows, *sensor.shape)).astype(np.float32)
            for sensor in policy.spec.observation_specs
        ]
        masks = np.ones((rows, policy.spec.action_spec.mask_size), np.float32)
        feed = {f"obs_{i}": sensor for i, sensor in enumerate(seen)} | {"action_masks": masks}
        if policy.memory_size:
            feed["recurrent_in"] = recurrent
        wanted = [name for name in outputs if name.startswith(("deterministic_", "recurrent_out"))]
        theirs = dict(zip(wanted, session.run(wanted, feed), strict=True))
        recurrent = theirs.get("recurrent_out", recurrent)
        actions, memories = policy.predict(seen, memories)
        if "deterministic_continuous_actions" in theirs:
            numbers = theirs["deterministic_continuous_actions"]
            # ML-Agents' deterministic SAC leaves out the tanh, which its sampled actions have.
            numbers = np.tanh(numbers) if run.startswith("soft") else numbers
            np.testing.assert_allclose(actions.continuous, numbers, atol=1e-5)
        np.testing.assert_array_equal(actions.discrete, theirs["deterministic_discrete_actions"])
        choices.update(actions.discrete.flatten().tolist())
    assert len(choices) > 1


def test_sacs_distribution_and_critics_are_the_originals() -> None:
    expected, learner = expected_of("soft"), loaded_learner("soft")
    with torch.inference_mode():
        seen = learner.actor.normalizer([torch.from_numpy(expected[f"obs_{i}"]) for i in range(2)])
        parameters = learner.networks["actor"].policy(seen)
        taken = torch.from_numpy(expected["taken"])
        for name in ("critics", "target_critics"):
            q = learner.networks[name].forward(EncoderInput(seen), taken)[:, :, 0].numpy()
            np.testing.assert_allclose(q, [expected["q1"], expected["q2"]], atol=1e-5)
    np.testing.assert_allclose(parameters.mean, expected["mean"], atol=1e-5)
    np.testing.assert_allclose(parameters.log_sigma, expected["log_sigma"], atol=1e-5)
    assert np.ptp(expected["q1"] - expected["q2"]) > 0.1
    assert np.ptp(expected["log_sigma"]) > 0.1


def test_pocas_values_and_baselines_are_the_originals() -> None:
    expected, learner = expected_of("groups"), loaded_learner("groups")
    steps, agents, size = expected["obs_0"].shape
    rows = expected["obs_0"].reshape(steps * agents, size)
    members = torch.arange(steps * agents).view(steps, agents)
    taken = torch.nn.functional.one_hot(torch.from_numpy(expected["taken"]).flatten(), 5).float()
    with torch.inference_mode():
        seen = learner.actor.normalizer([torch.from_numpy(rows)])
        values, baselines = learner.networks["critic"].eval().forward(seen, taken, members)
    np.testing.assert_allclose(values[:, 0], expected["value"], atol=1e-5)
    np.testing.assert_allclose(baselines[..., 0], expected["baseline"], atol=1e-5)
    assert np.ptp(expected["baseline"]) > 1e-3
    actions = Policy(converted("groups").checkpoint).act([rows], expected["masks"] > 0)
    np.testing.assert_array_equal(actions.discrete, expected["discrete"])


def moment(state: Mapping[str, Any], network: torch.nn.Module, name: str) -> torch.Tensor:
    """The mean moment of one parameter, in its shape."""
    start = 0
    for each, parameter in network.named_parameters():
        if each == name:
            found: torch.Tensor = state["mean"][start : start + parameter.numel()].view_as(parameter)
            return found
        start += parameter.numel()
    raise KeyError(name)


def test_sacs_moments_go_to_the_parameters_they_belong_to() -> None:
    content = torch.load(file_of("soft"), weights_only=True)
    adam = content["Optimizer:value_optimizer"]["state"]
    learner, state = loaded_learner("soft"), converted("soft").checkpoint.algorithm
    weight = moment(state["critic_optimizer"], learner.networks["critics"], "body.1.weight")
    # Numbers as in the file: two layers and the head of the first critic, then those of the second.
    assert torch.equal(weight, torch.stack([adam[number]["exp_avg"].t() for number in (2, 8)]))
    assert state["critic_optimizer"]["steps"] == int(adam[0]["step"])
    policy = content["Optimizer:policy_optimizer"]["state"]
    deviation = moment(state["actor_optimizer"], learner.networks["actor"], "actions.log_sigma.weight")
    assert torch.equal(deviation, policy[12]["exp_avg"])
    assert deviation.abs().max() > 0


def test_pocas_moments_go_to_the_parameters_they_belong_to() -> None:
    adam = torch.load(file_of("groups"), weights_only=True)["Optimizer:adam"]["state"]
    learner, state = loaded_learner("groups"), converted("groups").checkpoint.algorithm
    logits = moment(state["actor_optimizer"], learner.networks["actors"], "each.0.actions.logits.weight")
    assert torch.equal(logits, adam[10]["exp_avg"])
    # The actor's twelve parameters, the counter of agents, then the critic's.
    shown = moment(state["critic_optimizer"], learner.networks["critic"], "seen_acting.weight")
    assert torch.equal(shown, adam[15]["exp_avg"])
    assert learner.networks["critic"].state_dict()["most"] == 4


def test_another_trainer_in_the_configuration_is_named() -> None:
    with pytest.raises(UserError, match="is of the trainer 'sac', the configuration says 'ppo'"):
        converted("soft", trainer_type="ppo", hyperparameters={})
