"""Runs made from results folders of ML-Agents; see mlagents_runs/README.md."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import yaml

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.running.interop.mlagents_checkpoint import MLAgentsCheckpoint
from trainer_service.running.interop.mlagents_results import import_results, spec_of
from trainer_service.running.runs.checkpoint import load_checkpoint, read_content
from unity_bridge.specs import DimensionProperty, ObservationType

RUNS = Path(__file__).parents[2] / "mlagents_runs"


@pytest.fixture
def original(workplace: Path) -> Path:
    """The folder of a hybrid run, to do things to."""
    return Path(shutil.copytree(RUNS / "hybrid", workplace / "results" / "old"))


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_made_that_has_everything(mlagents_style, original: Path) -> None:
    said = mlagents_style("import-checkpoint", original, "--run-id=new")
    assert said.code == 0, said.err
    assert "Imported Hybrid (step 427) into results/new" in said.out
    assert files_below(Path("results/new")) - {".lock"} == {
        "configuration.yaml",
        "run_logs/training_status.json",
        "Hybrid.onnx",
        "Hybrid/checkpoint.safetensors",
        "Hybrid/Hybrid-427.safetensors",
        "Hybrid/Hybrid-427.onnx",
    }
    configuration = yaml.safe_load(Path("results/new/configuration.yaml").read_text())
    assert configuration["checkpoint_settings"]["run_id"] == "new"
    assert configuration["behaviors"]["Hybrid"]["network_settings"]["hidden_units"] == 8


def test_a_folder_of_ml_agents_is_resumed_where_it_lies(mlagents_style, original: Path) -> None:
    said = mlagents_style("learn", _longer(original), "--run-id=old", "--resume", "--env=sim:hybrid")
    assert said.code == 0, said.err
    assert "Resuming 'Hybrid' from step 427." in said.out
    checkpoint = load_checkpoint(original / "Hybrid" / "checkpoint.pt")
    assert checkpoint.step >= 900
    assert checkpoint.algorithm["optimizer"]["steps"] > 24


def test_a_rating_goes_on_where_it_was(mlagents_style, original: Path) -> None:
    def rating(run: str) -> float:
        return float(
            json.loads(Path("results", run, "run_logs/training_status.json").read_text())["Hybrid"]["elo"]
        )

    file = original / "run_logs" / "training_status.json"
    status = json.loads(file.read_text())
    status["Hybrid"]["elo"] = 1300.5
    file.write_text(json.dumps(status))
    assert mlagents_style("import-checkpoint", original, "--run-id=new").code == 0
    assert rating("new") == 1300.5
    path = _longer(original)
    configuration = yaml.safe_load(path.read_text())
    configuration["behaviors"]["Hybrid"] |= {"self_play": {}, "max_steps": 500}
    path.write_text(yaml.safe_dump(configuration))
    for run in ("old", "new"):  # of one side, so no game is played
        said = mlagents_style("learn", path, f"--run-id={run}", "--resume", "--env=sim:hybrid")
        assert said.code == 0, said.err
        assert rating(run) == 1300.5


def test_a_run_starts_from_the_weights_of_ml_agents(mlagents_style, original: Path) -> None:
    path = _longer(original)
    # So slow that nothing moves: what is saved at the end is what was read at the start.
    text = path.read_text().replace("learning_rate: 0.003", "learning_rate: 1.0e-30")
    path.write_text(text.replace("max_steps: 900", "max_steps: 150"))
    said = mlagents_style("learn", path, "--run-id=new", "--initialize-from=old", "--env=sim:hybrid")
    assert said.code == 0, said.err
    assert "Starting 'Hybrid' from step 0 with the weights of" in said.out
    theirs = read_content(original / "Hybrid" / "checkpoint.pt")["Policy"]
    network = load_checkpoint(Path("results/new/Hybrid/checkpoint.safetensors")).algorithm["network"]
    key = "network_body._body_endoder.seq_layers.0.weight"
    np.testing.assert_allclose(network["actor.body.layers.0.weight"], theirs[key], atol=1e-6)


def _longer(original: Path) -> Path:
    """The run's own configuration with a larger budget, as a user would edit it."""
    text = (original / "configuration.yaml").read_text().replace("max_steps: 400", "max_steps: 900")
    plain = yaml.safe_load(text)
    Path("config.yaml").write_text(yaml.safe_dump({"behaviors": plain["behaviors"]}))
    return Path("config.yaml")


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _rename_behavior(folder: Path) -> None:
    path = folder / "configuration.yaml"
    path.write_text(path.read_text().replace("Hybrid:", "Other:"))


def _recurrent(folder: Path) -> None:
    path = folder / "configuration.yaml"
    path.write_text(
        path.read_text().replace("memory: null", "memory: {memory_size: 8, sequence_length: 4}", 1)
    )


def _wider_model(folder: Path) -> None:
    model = onnx.load(folder / "Hybrid.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(model, folder / "Hybrid.onnx")


def _flat_model(folder: Path) -> None:
    model = onnx.load(folder / "Hybrid.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "any"
    onnx.save(model, folder / "Hybrid.onnx")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_without("configuration.yaml"), r"has no configuration\.yaml; expected the results folder"),
        (_without("Hybrid/checkpoint.pt"), r"holds no checkpoint"),
        (
            _without("Hybrid.onnx"),
            r"behavior 'Hybrid': neither .*Hybrid\.onnx' nor a model .*--initialize-from",
        ),
        (_rename_behavior, r"'Hybrid'.*'Other'"),
        (_recurrent, r"behavior 'Hybrid': .* was trained with a memory_size of 0, the configuration says 8"),
        (
            lambda folder: (folder / "Hybrid.onnx").write_bytes(b"\xff\xff"),
            r"model '.*Hybrid\.onnx' is damaged",
        ),
        (_wider_model, r"seq_layers\.0\.weight of Policy has shape \(8, 5\), expected \(8, 6\)"),
        (_flat_model, r"with 1 to 3 known dimensions each"),
    ],
)
def test_a_folder_that_cannot_be_imported_makes_no_run(
    original: Path, spoil: Callable[[Path], object], expected: str
) -> None:
    spoil(original)
    with pytest.raises(UserError, match=expected):
        import_results(original, "new", results_dir=Path("results"))
    assert not Path("results/new").exists()


def test_a_run_of_ours_is_not_imported(original: Path) -> None:
    import_results(original, "new", results_dir=Path("results"))
    with pytest.raises(UserError, match="is not a checkpoint of ML-Agents"):
        import_results(Path("results/new"), "newer", results_dir=Path("results"))


def _model(path: Path, shapes: Sequence[Sequence[int]]) -> Path:
    """A file with nothing but inputs."""
    inputs = [
        onnx.helper.make_tensor_value_info(f"obs_{i}", onnx.TensorProto.FLOAT, ["batch", *shape])
        for i, shape in enumerate(shapes)
    ]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", inputs, [])), path)
    return path


def _policy(goal_width: int | None) -> MLAgentsCheckpoint:
    policy = {
        "continuous_act_size_vector": torch.tensor([2.0]),
        "discrete_act_size_vector": torch.zeros(1, 0),
    }
    if goal_width is not None:
        policy["network_body._body_endoder.layers.2.hypernet.0.weight"] = torch.zeros(8, goal_width)
    return MLAgentsCheckpoint(Path("checkpoint.pt"), 1, {"Policy": policy})


SETTINGS = TrainerSettings.model_validate({"trainer_type": "ppo", "network_settings": {"hidden_units": 8}})


@pytest.mark.parametrize(("width", "goals"), [(None, []), (3, [0]), (11, [0, 1])])
def test_goals_are_told_by_the_width_of_what_they_feed(
    tmp_path: Path, width: int | None, goals: list[int]
) -> None:
    model = _model(tmp_path / "model.onnx", [(3,), (3, 20, 24), (2,), (5, 4)])
    sensors = spec_of(model, _policy(width), SETTINGS).observation_specs
    found = [i for i, each in enumerate(sensors) if each.observation_type is ObservationType.GOAL_SIGNAL]
    assert found == goals
    assert sensors[3].is_entities
    assert sensors[0].dimension_property == (DimensionProperty.NONE,)


def test_ambiguous_goal_sensors_are_not_guessed(tmp_path: Path) -> None:
    model = _model(tmp_path / "model.onnx", [(3,), (3,), (2,)])
    with pytest.raises(UserError, match=r"with a goal, and which of the sensors .*--initialize-from"):
        spec_of(model, _policy(3), SETTINGS)
