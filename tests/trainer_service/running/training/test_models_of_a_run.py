"""The models that a run writes beside its checkpoints, and those that are written again from them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from recorded_runs import recorder_of, stored, write_at

from trainer_service.learning.algorithms.common.member_policy import ExportModel
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop.onnx_export import export_policy, to_onnx
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import BehaviorStatus


@pytest.fixture
def folder(workplace: Path) -> Iterator[RunFolder]:
    with RunFolder.open("results", "run") as opened:
        yield opened


@pytest.fixture
def walker(make_behavior) -> Behavior:
    return make_behavior(
        name="Two Legs", sizes=(3,), continuous=2, checkpoint_interval=100, keep_checkpoints=2
    )


def recorded(
    folder: RunFolder,
    behavior: Behavior,
    *steps: int,
    finish: bool = False,
    export_model: ExportModel | None = export_policy,
) -> BehaviorStatus:
    """The listed checkpoints after a behavior has come to these steps."""
    recorder = recorder_of(folder, behavior, export_model=export_model)
    write_at(recorder, behavior, *steps)
    if finish:
        recorder.finish([behavior])
    return stored(folder).behavior(behavior.name)


def models(folder: RunFolder) -> list[str]:
    return sorted(path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*.onnx"))


def test_every_checkpoint_has_its_model_and_both_go_together(folder: RunFolder, walker: Behavior) -> None:
    status = recorded(folder, walker, 100, 200, 300)
    assert models(folder) == ["Two Legs/Two Legs-200.onnx", "Two Legs/Two Legs-300.onnx"]
    assert [record.file_path for record in status.checkpoints] == [
        f"results/run/Two Legs/Two Legs-{step}.onnx" for step in (200, 300)
    ]
    assert [record.auxiliary_file_paths for record in status.checkpoints] == [
        (f"results/run/Two Legs/Two Legs-{step}.safetensors",) for step in (200, 300)
    ]


def test_a_model_is_of_the_weights_beside_it(folder: RunFolder, walker: Behavior) -> None:
    recorded(folder, walker, 100)
    policy = Policy(load_checkpoint(folder.numbered("Two Legs", 100)))
    written = folder.numbered("Two Legs", 100, ".onnx").read_bytes()
    assert written == to_onnx(policy.network(), policy.spec)


def test_a_model_that_fails_costs_a_warning_and_nothing_else(
    folder: RunFolder, walker: Behavior, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with caplog.at_level(logging.WARNING, logger="trainer_service"):
        status = recorded(folder, walker, 100, 200, finish=True)
    assert "'Two Legs': no model could be written" in caplog.text
    assert "pip install onnx" in caplog.text
    assert "Its weights are safe" in caplog.text
    assert models(folder) == []
    assert [record.file_path for record in status.checkpoints] == [
        f"results/run/Two Legs/Two Legs-{step}.safetensors" for step in (100, 200)
    ]
    assert status.final_checkpoint is not None
    assert status.final_checkpoint.file_path == "results/run/Two Legs/Two Legs-200.safetensors"
    assert load_checkpoint(folder.checkpoint("Two Legs")).step == 200


@pytest.fixture
def finished(folder: RunFolder, walker: Behavior) -> RunFolder:
    """A run of two behaviors without any model."""
    for name in ("Two Legs", "Wings"):
        for step in (100, 200):
            walker.name, walker.step = name, step
            save_checkpoint(checkpoint_of(walker), folder.numbered(name, step), folder.checkpoint(name))
    return folder


def test_models_are_written_again_from_the_newest_checkpoints(mlagents_style, finished: RunFolder) -> None:
    said = mlagents_style("export", "run", "--output=out")
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "Exported Two Legs (step 200) to out/Two Legs.onnx",
        "Exported Wings (step 200) to out/Wings.onnx",
    ]
    for path in Path("out").iterdir():
        onnx.checker.check_model(onnx.load(path))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--step=150"], "has no checkpoint of step 150; it has Two Legs-100, Two Legs-200, Wings-100, Wings-200"),
        (["--checkpoint=nowhere.safetensors"], "checkpoint 'nowhere.safetensors' does not exist"),
        (["--output=all.onnx"], "'all.onnx' is one file for the behaviors Two Legs, Wings; expected a folder"),

    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_named(
    mlagents_style, finished: RunFolder, flags: list[str], expected: str
) -> None:
    said = mlagents_style("export", "run", *flags)
    assert said.code == 2
    assert expected in said.err
    assert models(finished) == []
