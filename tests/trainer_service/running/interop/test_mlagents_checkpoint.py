"""Checkpoints that the real ML-Agents trainer wrote; see mlagents_runs/README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.config import TrainerSettings, load_run_options
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import PPO, Compute
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.running.interop.mlagents_checkpoint import (
    convert_checkpoint,
    load_mlagents_checkpoint,
    load_source,
)
from trainer_service.running.runs.checkpoint import Checkpoint, load_checkpoint
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec

RUNS = Path(__file__).parents[2] / "mlagents_runs"
NONE, MOVES = DimensionProperty.NONE, DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
SPECS: Mapping[str, BehaviorSpec] = {
    "Hybrid": BehaviorSpec(
        (ObservationSpec("order", (3,)), ObservationSpec("trolley", (2,))), ActionSpec(1, (3, 3))
    ),
    "Camera Car": BehaviorSpec(
        (ObservationSpec("camera", (3, 20, 24), (NONE, MOVES, MOVES)), ObservationSpec("speed", (3,))),
        ActionSpec(1, (2, 3)),
    ),
    "Hallway": BehaviorSpec((ObservationSpec("rays", (30,)),), ActionSpec(0, (5,))),
}
FOLDERS: Mapping[str, Path] = {
    "Hybrid": RUNS / "hybrid",
    "Camera Car": RUNS / "camera",
    "Hallway": RUNS / "hallway",
}


def settings_of(name: str) -> TrainerSettings:
    return load_run_options(FOLDERS[name] / "configuration.yaml").options.behavior_settings(name)


def changed(settings: TrainerSettings, section: str | None = None, **values: Any) -> TrainerSettings:
    plain = settings.model_dump()
    (plain if section is None else plain[section]).update(values)
    return TrainerSettings.model_validate(plain)


def file_of(name: str) -> Path:
    return FOLDERS[name] / name / "checkpoint.pt"


def content_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(file_of(name), weights_only=True)
    return content


def converted(
    name: str,
    path: Path | None = None,
    spec: BehaviorSpec | None = None,
    settings: TrainerSettings | None = None,
) -> Checkpoint:
    source = load_source(path or file_of(name))
    return convert_checkpoint(
        source, name, spec or SPECS[name], settings or settings_of(name), seed=3
    ).checkpoint


@pytest.fixture
def rewritten(tmp_path: Path) -> Callable[..., Path]:
    """A checkpoint as ML-Agents wrote it, after something was done to its content."""

    def rewrite(change: Callable[[dict[str, Any]], object], name: str = "Hybrid") -> Path:
        content = content_of(name)
        change(content)
        torch.save(content, tmp_path / "changed.pt")
        return tmp_path / "changed.pt"

    return rewrite


@pytest.mark.parametrize("name", ["Hybrid", "Camera Car"])
def test_the_critic_values_as_the_original_does(name: str) -> None:
    expected = np.load(FOLDERS[name] / "expected.npz")
    ppo = PPO(SPECS[name], settings_of(name), Compute(torch.device("cpu"), 0))
    ppo.load_state_dict(converted(name).algorithm)
    with torch.inference_mode():
        seen = ppo.actor.normalizer([torch.from_numpy(expected[f"obs_{i}"]) for i in range(2)])
        values = ppo.actor.network.values(seen).numpy()[:, 0]
    np.testing.assert_allclose(values, expected["value"], atol=1e-5)


def test_the_recurrent_critic_equals_the_original_over_a_sequence() -> None:
    expected = np.load(FOLDERS["Hallway"] / "expected.npz")
    ppo = PPO(SPECS["Hallway"], settings_of("Hallway"), Compute(torch.device("cpu"), 0))
    ppo.load_state_dict(converted("Hallway").algorithm)
    steps, agents = expected["obs"].shape[:2]
    by_agent = torch.from_numpy(expected["obs"].transpose(1, 0, 2).reshape(steps * agents, -1).copy())
    sequences = Sequences(
        torch.zeros(agents, ppo.actor.memory_size), torch.ones(agents, steps, dtype=torch.bool)
    )
    with torch.inference_mode():
        _, values = ppo.actor.network.policy_and_values(ppo.actor.normalizer([by_agent]), sequences)
    np.testing.assert_allclose(values.numpy().reshape(agents, steps).T, expected["value"], atol=1e-5)


def test_adams_moments_go_to_the_parameters_they_belong_to() -> None:
    adam = content_of("Hybrid")["Optimizer:value_optimizer"]["state"]
    # Numbers as in the file: six constants, then the actor's tensors in order, then the critic's.
    numbers = {
        "actor.body.layers.0.weight": [6],
        "actions.log_sigma": [10],
        "actions.mean.weight": [11],
        "actions.logits.weight": [13, 15],
        "actions.logits.bias": [14, 16],
        "critic.body.layers.1.weight": [19],
        "value.weight": [21],
    }
    state = converted("Hybrid").algorithm
    ppo = PPO(SPECS["Hybrid"], settings_of("Hybrid"), Compute(torch.device("cpu"), 0))
    ppo.load_state_dict(state)
    start, seen = 0, {}
    for name, parameter in ppo.actor.network.named_parameters():
        seen[name] = slice(start, start := start + parameter.numel())
    assert start == len(state["optimizer"]["mean"])
    for name, expected in numbers.items():
        for ours, theirs in (("mean", "exp_avg"), ("square", "exp_avg_sq")):
            wanted = torch.cat([adam[number][theirs].flatten() for number in expected])
            assert torch.equal(state["optimizer"][ours][seen[name]], wanted), name
    assert state["optimizer"]["steps"] == 24


def test_steps_and_statistics_are_kept() -> None:
    checkpoint = converted("Hybrid")
    policy = content_of("Hybrid")["Policy"]
    prefix = "network_body.observation_encoder.processors.1.normalizer."
    assert checkpoint.step == 427
    statistics = checkpoint.algorithm["normalizer"]
    assert statistics["_normalizers.1.rows"] == policy[f"{prefix}normalization_steps"]
    np.testing.assert_array_equal(
        statistics["_normalizers.1.sum_squares"], policy[f"{prefix}running_variance"]
    )


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        (
            "network_settings",
            {"hidden_units": 9},
            r"seq_layers\.0\.weight of Policy has shape \(8, 5\), expected \(9, 5\)",
        ),
        ("network_settings", {"num_layers": 3}, r"_body_endoder\.seq_layers\.4\.weight is missing in Policy"),
        (
            "network_settings",
            {"activation": "tanh"},
            "has networks with swish, the configuration says activation 'tanh'",
        ),
        ("hyperparameters", {"shared_critic": True}, "shared_critic False, the configuration says True"),
    ],
)
def test_settings_that_do_not_fit_are_named(section: str, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=rf"behavior 'Hybrid': '.*checkpoint\.pt' .*{expected}"):
        converted("Hybrid", settings=changed(settings_of("Hybrid"), section, **values))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda content: content["global_step"].clear(), "key '_GlobalSteps__global_step' is missing"),
        (lambda content: content.pop("Optimizer:value_optimizer"), "its modules are"),
    ],
)
def test_an_incomplete_file_is_named(
    rewritten: Callable[..., Path], change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    with pytest.raises(UserError, match=rf"changed\.pt' is not a complete checkpoint.*{expected}|{expected}"):
        load_mlagents_checkpoint(rewritten(change))


@pytest.mark.parametrize(
    "damage",
    [
        lambda adam: adam["state"][8].update(exp_avg=torch.zeros(3)),
        lambda adam: adam["state"][8].pop("exp_avg_sq"),
        lambda adam: adam["state"][8].update(step=torch.tensor(7.0)),
        lambda adam: adam.clear(),
    ],
)
def test_damaged_moments_cost_the_moments_only(
    rewritten: Callable[..., Path], damage: Callable[[dict[str, Any]], object]
) -> None:
    path = rewritten(lambda content: damage(content["Optimizer:value_optimizer"]))
    conversion = convert_checkpoint(
        load_source(path), "Hybrid", SPECS["Hybrid"], settings_of("Hybrid"), seed=3
    )
    assert "moments, which start from scratch" in conversion.left_out[0]
    assert conversion.checkpoint.algorithm["optimizer"]["steps"] == 0


def test_a_foreign_checkpoint_names_the_import_command() -> None:
    with pytest.raises(UserError, match=r"written by ML-Agents; make a run of it with: .*import-checkpoint"):
        load_checkpoint(file_of("Hybrid"))


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
        converted("Hallway", settings=changed(settings_of("Hallway"), "network_settings", memory=memory))
