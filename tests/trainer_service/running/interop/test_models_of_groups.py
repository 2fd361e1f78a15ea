"""Models of a team's members, and policies of them, compared with the team's policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_models import assert_model_acts_as_policy
from pursuit_groups import member

from trainer_service import load_policy
from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.observation_selection import with_group_size
from trainer_service.learning.rollout.agent_padding import AgentPadding, padded_spec
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, models
from trainer_service.running.interop.onnx_export import export_run, to_onnx
from trainer_service.running.policy import Policy, by_behavior
from trainer_service.running.runs.checkpoint import save_checkpoint
from trainer_service.running.runs.folder import RunFolder
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import ActionSpec, MemberSpec

SPEC = padded_spec([member("Leader", 1), member("Runner", 2, camera=True)])
VECTORS = padded_spec(
    [
        MemberSpec("Leader", (vector_sensor("number", 2),), ActionSpec(0, (3,)), 1),
        MemberSpec("Runner", (vector_sensor("heard", 1),), ActionSpec(0, (2,)), 2),
    ]
)
ROWS = 4


def behavior_of(
    trainer_type: str, spec=SPEC, *, memory: bool = False, seed: int = 1, **hyperparameters: Any
) -> Behavior:
    network: dict[str, Any] = {"hidden_units": 8, "num_layers": 1, "normalize": True}
    if memory:
        network["memory"] = {"memory_size": 8, "sequence_length": 4}
    settings = TrainerSettings.model_validate(
        {"trainer_type": trainer_type, "hyperparameters": hyperparameters, "network_settings": network}
    )
    settings = with_group_size(settings, len(spec.agent_members))
    return Behavior("Pursuit", spec, settings, Compute(torch.device("cpu"), seed))


LEARNERS = [
    ("mappo", {"share": "none"}),
    ("mappo", {"share": "full"}),
    ("maddpg", {}),
    ("qmix", {}),
    ("sic", {}),
]


@pytest.mark.parametrize(("trainer_type", "hyper"), LEARNERS)
def test_a_model_acts_as_the_policy_of_its_member(
    tmp_path: Path, trainer_type: str, hyper: dict[str, Any]
) -> None:
    spec = SPEC if trainer_type == "mappo" else VECTORS
    behavior = behavior_of(trainer_type, spec, memory=trainer_type == "qmix", **hyper)
    policy = Policy(checkpoint_of(behavior))
    for name, (network, inputs) in models(behavior).items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(to_onnx(network, inputs))
        part = policy.member(name)
        assert [sensor.name for sensor in inputs.observation_specs][: len(part.spec.observation_specs)] == [
            sensor.name for sensor in part.spec.observation_specs
        ]
        assert part.inputs == inputs
        if not part.communicates:
            assert_model_acts_as_policy(path, part, draws=trainer_type != "qmix")


@pytest.mark.parametrize("memory", [False, True], ids=["feed-forward", "lstm"])
def test_a_member_acts_alone_as_within_the_team(memory: bool) -> None:
    policy = Policy(checkpoint_of(behavior_of("mappo", share="none", memory=memory)))
    rng, padding = np.random.default_rng(1), AgentPadding(SPEC)
    memories = rng.normal(size=(ROWS, policy.memory_size)).astype(np.float32)
    for number, spec in enumerate(SPEC.members):
        seen = [
            rng.normal(size=(ROWS, *sensor.shape)).astype(np.float32) for sensor in spec.observation_specs
        ]
        allowed = rng.random((ROWS, spec.action_spec.mask_size)) < 0.7
        allowed[:, np.cumsum(spec.action_spec.discrete_branches) - 1] = True
        alone = policy.member(spec.behavior)
        indices = np.arange(ROWS) % spec.num_agents
        given = indices if alone.num_agents else None
        actions, remembered = alone.predict(seen, memories, allowed, agent_indices=given)
        padded, choices = padding.pad(number, seen, allowed)
        within, kept = policy.predict(padded, memories, choices, agent_indices=indices + number)
        own = spec.action_spec
        assert np.array_equal(actions.continuous, within.continuous[:, : own.continuous_size])
        assert np.array_equal(actions.discrete, within.discrete[:, : own.discrete_size])
        assert (within.discrete[:, own.discrete_size :] == 0).all()
        assert np.array_equal(remembered, kept)


def test_members_are_loaded_and_exported_by_name(workplace: Path) -> None:
    folder = RunFolder.open("results", "run")
    save_checkpoint(
        checkpoint_of(behavior_of("mappo", share="none")),
        folder.checkpoint("Pursuit"),
        folder.numbered("Pursuit", 0),
        folder.best("Pursuit"),
    )
    assert load_policy(folder.path).members == ["Leader", "Runner"]
    assert load_policy(folder.path, "Runner").num_agents == 2
    seen = [np.zeros((1, *sensor.shape)) for sensor in SPEC.members[1].observation_specs]
    with pytest.raises(ValueError, match="trained for indices below 2, got 2"):
        load_policy(folder.path, "Runner").act(seen, agent_indices=[2])
    with pytest.raises(UserError, match="no behavior 'Walker'; it has Pursuit, Leader, Runner"):
        load_policy(folder.path, "Walker")
    root = folder.path
    assert set(export_run(folder)) == {root / "Leader.onnx", root / "Runner.onnx"}
    assert set(export_run(folder, step=0)) == {
        root / each / f"{each}-0.onnx" for each in ("Leader", "Runner")
    }
    best = export_run(folder, checkpoint=folder.best("Pursuit"))
    assert set(best) == {root / each / "best.onnx" for each in ("Leader", "Runner")}
    assert folder.saved_behaviors() == ["Pursuit"]
    folder.close()
    with RunFolder.open("results", "run", force=True) as again:
        again.begin("")
    assert [path.name for path in root.iterdir()] == ["configuration.yaml"]


def test_members_play_apart_unless_they_tell_each_other_what_they_see() -> None:
    policy = Policy(checkpoint_of(behavior_of("mappo", VECTORS, share="none")))
    assert list(by_behavior({"Pursuit": policy})) == ["Leader", "Runner"]
    leader = policy.member("Leader")
    assert by_behavior({"Leader": leader}) == {"Leader": leader}
    with pytest.raises(UserError, match="the agents of team 'Pursuit' tell each other what they see"):
        by_behavior({"Pursuit": Policy(checkpoint_of(behavior_of("sic", VECTORS)))})
