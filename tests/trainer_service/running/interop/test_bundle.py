"""Bundles: their descriptions, and their runners compared with the policies that they come from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
import torch
from every_trainer import actions_of, make_behavior, settings_for
from numpy.typing import NDArray
from pursuit_groups import member

from trainer_service import export, load_policy
from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.observation_selection import with_group_size
from trainer_service.learning.rollout.agent_padding import padded_spec
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop.bundle import describe, description_schema, export_bundles
from trainer_service.running.interop.onnx_export import to_onnx
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import save_checkpoint
from trainer_service.running.runs.files import SaveError, temporary_path
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import BUNDLE_FILES
from unity_bridge.simulators.scene import camera_sensor, vector_sensor
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec

REPOSITORY = Path(__file__).parents[4]
PROGRAMS = REPOSITORY / "tests" / "programs"
ORT = REPOSITORY / "examples" / "browser" / "node_modules" / "onnxruntime-web" / "dist" / "ort.wasm.min.mjs"
DECISIONS, COPIES = 12, 4000
VECTOR, CAMERA = vector_sensor("vector", 3), camera_sensor("camera", 20, 24)
HYBRID = ActionSpec(2, (3, 1, 4))
MEMORY = {"memory": {"memory_size": 8, "sequence_length": 4}}
PAIR = padded_spec([member("Leader", 1), member("Runner", 2, camera=True)])

KINDS: Mapping[str, tuple[BehaviorSpec, Mapping[str, Any]]] = {
    "vector": (BehaviorSpec((VECTOR,), ActionSpec(2)), {"network_settings": {"normalize": True}}),
    "squashed": (BehaviorSpec((VECTOR,), ActionSpec(2)), {"trainer_type": "sac"}),
    "picture": (BehaviorSpec((CAMERA, VECTOR), ActionSpec(0, (4,))), {}),
    "lstm": (BehaviorSpec((VECTOR,), HYBRID), {"network_settings": MEMORY}),
    "hybrid": (BehaviorSpec((VECTOR, vector_sensor(GLOBAL_STATE, 2)), HYBRID), {}),
    "Runner": (PAIR, {"trainer_type": "mappo", "hyperparameters": {"share": "none"}}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def saved_run(results: Path, kind: str, name: str = "Walker") -> RunFolder:
    """A run whose policy has larger weights than a new one, so that its actions differ between observations."""
    spec, given = KINDS[kind]
    network = {"hidden_units": 16, "num_layers": 1, **given.get("network_settings", {})}
    settings = TrainerSettings.model_validate({"trainer_type": "ppo", **given, "network_settings": network})
    settings = with_group_size(settings, len(spec.agent_members)) if spec.members else settings
    behavior = Behavior(name, spec, settings, Compute(torch.device("cpu"), 1))
    checkpoint, chance = checkpoint_of(behavior), torch.Generator().manual_seed(1)
    (weights,) = (
        checkpoint.algorithm[part] for part in ("network", "actor", "actors") if part in checkpoint.algorithm
    )
    for tensor in weights.values():
        tensor.add_(torch.randn(tensor.shape, generator=chance), alpha=0.1)
    folder = RunFolder.open(results, "run")
    save_checkpoint(checkpoint, folder.checkpoint(name))
    folder.close()
    return folder


def bundle_of(results: Path, kind: str) -> tuple[Path, Policy]:
    folder = saved_run(results, kind)
    policy = load_policy(folder.path, kind if KINDS[kind][0].members else None)
    export_bundles(folder)
    return folder.bundle / policy.behavior, policy


def recorded(policy: Policy) -> dict[str, Any]:
    """Random decisions of up to three agents, one of which begins again, another of which misses a decision."""
    rng, spec = np.random.default_rng(5), policy.spec

    def decision(ids: list[str] | None, rows: int, number: int, scale: float = 2.0) -> dict[str, Any]:
        sensors: list[tuple[NDArray[Any], str]] = []
        for each in spec.observation_specs:
            shape = (rows, *each.shape)
            if each.is_picture and number % 2 == 0:
                sensors.append((rng.integers(0, 256, shape), "uint8"))
            else:
                seen = rng.random(shape) if each.is_picture else rng.normal(scale=scale, size=shape)
                sensors.append((seen.astype(np.float32), "float32"))
        allowed = rng.random((rows, spec.action_spec.mask_size)) < 0.6
        allowed[:, np.cumsum(spec.action_spec.discrete_branches, dtype=int) - 1] = True
        return {
            "observations": [(values.tolist(), kind) for values, kind in sensors],
            "ids": ids,
            "begin": ["b"] if number == 5 else None,
            "masks": allowed.tolist() if spec.action_spec.mask_size and number % 3 else None,
            "indices": rng.integers(policy.num_agents, size=rows).tolist() if policy.num_agents else None,
        }

    agents = [["a", "b"] if number == 7 else ["a", "b", "c"] for number in range(DECISIONS)]
    decisions = [decision(ids, len(ids), number) for number, ids in enumerate(agents)]
    return {"decisions": decisions, "crowd": decision(None, 1, 1, scale=0.1), "copies": COPIES}


def expected(policy: Policy, decisions: list[dict[str, Any]], copies: int = 1, *, greedy: bool = True) -> Any:
    """The actions of the policy, by kind, for each of the decisions."""
    memories: dict[str, NDArray[np.float32]] = {}
    for each in decisions:
        sensors = [np.repeat(np.array(values, kind), copies, 0) for values, kind in each["observations"]]
        ids = each["ids"] or list(map(str, range(len(sensors[0]))))
        for began in each["begin"] or ():
            memories.pop(began, None)
        before = np.stack([memories.get(agent, np.zeros(policy.memory_size, np.float32)) for agent in ids])
        masks, indices = (
            None if each[name] is None else np.repeat(each[name], copies, 0) for name in ("masks", "indices")
        )
        actions, kept = policy.predict(sensors, before, masks, agent_indices=indices, deterministic=greedy)
        memories |= zip(ids, kept, strict=True)
        sizes = {
            "continuous": policy.spec.action_spec.continuous_size,
            "discrete": policy.spec.action_spec.mask_size,
        }
        yield {kind: getattr(actions, kind) for kind, size in sizes.items() if size}


def assert_acts_as(policy: Policy, episode: dict[str, Any], result: dict[str, Any]) -> None:
    decisions = list(expected(policy, episode["decisions"]))
    assert len({str(each) for each in decisions}) > DECISIONS / 2, (
        "the policy hardly looks at its observations"
    )
    for ours, theirs in zip(decisions, result["decided"], strict=True):
        assert ours.keys() == theirs.keys()
        for kind, values in ours.items():
            np.testing.assert_allclose(theirs[kind], values, atol=1e-5, rtol=0)
    (crowd,) = expected(policy, [episode["crowd"]], COPIES, greedy=False)
    for kind, values in crowd.items():
        drawn = np.array(result["drawn"][0][kind])
        assert drawn.shape == values.shape
        if kind == "continuous":
            for one, other in zip(drawn.T, values.T, strict=True):
                assert largest_gap(one, other) < 2.7 * np.sqrt(2 / COPIES)  # Kolmogorov-Smirnov, p = 1e-6
                assert np.unique(one).size > COPIES / 2
        else:
            joint = [
                np.ravel_multi_index(each.T, policy.spec.action_spec.discrete_branches)
                for each in (drawn, values)
            ]
            ours, theirs = (np.bincount(each, minlength=50) / COPIES for each in joint)
            assert np.abs(ours - theirs).max() < 5 * np.sqrt(0.5 / COPIES)
            assert ours.max() < 0.99


def largest_gap(one: NDArray[Any], other: NDArray[Any]) -> float:
    """The largest difference of two samples' distribution functions."""
    at = np.sort(np.concatenate([one, other]))
    below = [np.searchsorted(np.sort(each), at, side="right") / len(each) for each in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def run_program(folder: Path, episode: dict[str, Any], *line: str | Path) -> dict[str, Any]:
    (folder / "episode.json").write_text(json.dumps(episode))
    done = subprocess.run(
        [*line, folder / "episode.json", folder / "result.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


@every_kind
@pytest.mark.process
def test_the_python_runner_acts_as_the_policy_without_torch(tmp_path: Path, kind: str) -> None:
    bundle, policy = bundle_of(tmp_path, kind)
    episode = recorded(policy)
    result = run_program(tmp_path, episode, sys.executable, "-I", PROGRAMS / "act_by_bundle.py", bundle)
    assert_acts_as(policy, episode, result)
    first, again, other = result["drawn"]
    assert first == again
    assert first != other


@every_kind
@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.skipif(not ORT.is_file(), reason="run `npm install onnxruntime-web` in examples/browser")
def test_the_javascript_runner_acts_as_the_policy(tmp_path: Path, kind: str) -> None:
    bundle, policy = bundle_of(tmp_path, kind)
    episode = recorded(policy)
    assert_acts_as(
        policy, episode, run_program(tmp_path, episode, "node", PROGRAMS / "act_by_bundle.mjs", ORT, bundle)
    )


@every_kind
def test_a_description_agrees_with_schema_model_and_policy(tmp_path: Path, kind: str) -> None:
    bundle, policy = bundle_of(tmp_path, kind)
    assert sorted(each.name for each in bundle.iterdir()) == sorted(BUNDLE_FILES)
    about = json.loads((bundle / "policy.json").read_text())
    jsonschema.validate(about, description_schema())
    sensors = about["observations"]
    assert [(each["name"], tuple(each["shape"])) for each in sensors] == [
        (each.name, each.shape) for each in policy.spec.observation_specs
    ]
    graph = onnx.load(bundle / about["model"]).graph
    others = [about[part] for part in ("agent_index", "action_masks", "memory") if about[part]]
    assert {each["input"] for each in (*sensors, *others)} == {each.name for each in graph.input}
    named = {
        about[kind][how] for kind in ("continuous", "discrete") if about[kind] for how in ("greedy", "drawn")
    }
    assert named <= {each.name for each in graph.output}
    drawing = [node for node in graph.node if node.op_type in about["random_operators"]]
    assert drawing
    assert not [each for node in drawing for each in node.attribute if each.name == "seed"]
    assert (about["agent_index"] or {"size": 0})["size"] == policy.num_agents
    assert [each["role"] for each in sensors if each["name"] == GLOBAL_STATE] == ["global_state"] * (
        kind == "hybrid"
    )


@pytest.mark.parametrize(("trainer_type", "roles"), [("dqn", []), ("sic", ["team_observations"])])
def test_values_draw_nothing_and_observations_of_groups_have_their_role(
    trainer_type: str, roles: list[str]
) -> None:
    settings = settings_for(trainer_type, None, False)
    policy = Policy(checkpoint_of(make_behavior(settings, actions_of(settings), seed=1)))
    about = describe("Probe", 0, policy.inputs, 0, to_onnx(policy.network(), policy.inputs))
    assert about.random_operators == ()
    assert [each.role for each in about.observations] == ["observation", *roles]


def test_a_bundle_is_replaced_by_the_next_one_and_removed_with_its_run(tmp_path: Path) -> None:
    folder = saved_run(tmp_path, "vector")
    (place,) = export_bundles(folder)
    (place / "policy.py").write_text("changed")
    (place / "notes.txt").write_text("mine")
    export_bundles(folder)
    assert "onnxruntime" in (place / "policy.py").read_text()
    assert (place / "notes.txt").read_text() == "mine"
    (place / "notes.txt").unlink()
    with RunFolder.open(tmp_path, "run", force=True) as again:
        again.begin("")
    assert [path.name for path in folder.path.iterdir()] == ["configuration.yaml"]


@pytest.mark.parametrize(
    ("there", "message"),
    [
        (
            "notes.txt",
            "holds 'notes.txt', which is no bundle; expected a new or empty folder, or one of bundles",
        ),
        ("Walker/policy.onnx", "holds 'Walker', which is no bundle"),
        (None, "is a file; expected a folder"),
    ],
)
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path, there: str | None, message: str) -> None:
    folder, target = saved_run(tmp_path, "vector"), tmp_path / "target"
    file = target if there is None else target / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    with pytest.raises(UserError, match=f"'{target}' {message}"):
        export(folder.path, bundle=target)
    assert [each.read_text() for each in tmp_path.rglob("*") if each == file] == ["mine"]
    assert len([each for each in tmp_path.rglob("*") if each.name in ("policy.json", "policy.py")]) == 0


def test_a_failed_write_leaves_the_earlier_bundle_whole(tmp_path: Path) -> None:
    folder = saved_run(tmp_path, "vector")
    (place,) = export_bundles(folder)
    (place / "policy.onnx").write_bytes(b"an earlier one")
    temporary_path(place / "policy.mjs").mkdir()
    with pytest.raises(SaveError, match=r"cannot write '.*policy\.mjs'"):
        export_bundles(folder)
    assert (place / "policy.onnx").read_bytes() == b"an earlier one"
