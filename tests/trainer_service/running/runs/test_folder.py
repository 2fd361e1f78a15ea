import os
from pathlib import Path

import pytest

from trainer_service.errors import UserError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its content, None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


OURS = (
    "configuration.yaml",
    "metrics.jsonl",
    "film-500.gif",
    "Ball.onnx",
    "set-aside-1/metrics.jsonl",
    "set-aside-1/Ball/checkpoint.safetensors",
    "set-aside-1/Ball/Ball-700.onnx",
    "run_logs/training_status.json",
    "run_logs/timers.json",
    "run_logs/Player-0.log",
    "run_logs/trainer.log",
    "run_logs/trainer.log.1",
    "Ball/checkpoint.safetensors",
    "Ball/Ball-500.safetensors",
    "Ball/Ball-500.onnx",
    "Ball/replay.npz",
    "Ball/replay-500-steps-0.npz",
    "Ball/events.out.tfevents.1700000000.host.1.0",
    "Ball/.checkpoint.safetensors.4711.tmp",
    "Ball/.replay-500-steps-0.npz.4711.tmp",
)


def test_a_taken_run_id_is_refused_with_three_remedies(tmp_path: Path) -> None:
    fill(tmp_path / "run", *OURS)
    before = snapshot(tmp_path)
    with pytest.raises(UserError) as caught:
        RunFolder.open(tmp_path, "run")
    for expected in (str(tmp_path / "run"), "--run-id", "--resume", "--force"):
        assert expected in str(caught.value)
    assert snapshot(tmp_path) == before


def test_a_taken_run_id_without_a_policy_has_nothing_to_lose(tmp_path: Path) -> None:
    fill(tmp_path / "run", "configuration.yaml", "Ball/events.out.tfevents.1700000000.host.1.0")
    with pytest.raises(UserError, match=r"is taken: .*nothing was learned in it yet\. Use --force"):
        RunFolder.open(tmp_path, "run")


@pytest.mark.parametrize("kept", ["metrics.jsonl", "Ball/Ball-5.onnx", "set-aside-1/Ball/Ball-7.pt"])
def test_what_may_be_learned_is_not_said_to_be_nothing(tmp_path: Path, kept: str) -> None:
    fill(tmp_path / "run", "Ball/events.out.tfevents.1700000000.host.1.0", kept)
    with pytest.raises(UserError, match=r"holds an earlier run\. Either choose a new --run-id"):
        RunFolder.open(tmp_path, "run")


def test_a_runs_files_stay_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RunFolder.open("results", "run") as folder:
        assert (folder.given, folder.path) == (Path("results/run"), tmp_path / "results/run")


@pytest.mark.parametrize("left", [(), (".lock",)])
def test_a_folder_without_a_run_in_it_is_free(tmp_path: Path, left: tuple[str, ...]) -> None:
    (tmp_path / "run").mkdir()
    fill(tmp_path / "run", *left)
    with RunFolder.open(tmp_path, "run") as run:
        assert run.writable


def test_resuming_keeps_everything_but_the_leftovers_of_a_kill(tmp_path: Path) -> None:
    fill(tmp_path / "run", *OURS)
    before = snapshot(tmp_path)
    RunFolder.open(tmp_path, "run", resume=True).close()
    del before["run/Ball/.checkpoint.safetensors.4711.tmp"]
    del before["run/Ball/.replay-500-steps-0.npz.4711.tmp"]
    assert snapshot(tmp_path) == before


def test_resuming_a_run_that_is_missing_names_the_nearest(tmp_path: Path) -> None:
    fill(tmp_path / "walker_01", "configuration.yaml")
    with pytest.raises(UserError, match=r"no run 'walker_1' .*did you mean 'walker_01'\?.*--resume"):
        RunFolder.open(tmp_path, "walker_1", resume=True)
    assert not (tmp_path / "walker_1").exists()


def test_force_leaves_what_a_user_put_there(tmp_path: Path) -> None:
    users = (
        "notes.txt",
        "film-mine.gif",
        "Favourite.onnx",
        "Ball/notes.txt",
        "Ball/Ball-best.safetensors",
        "Ball/Other-500.safetensors",
        "Ball/replay-mine.npz",
        "run_logs/plot.png",
        "keep/Ball-500.onnx",
        "keep/deeper/checkpoint.safetensors",
    )
    fill(tmp_path / "run", *OURS, *users)
    with RunFolder.open(tmp_path, "run", force=True) as folder:
        folder.begin("new")
    left = {name for name, content in snapshot(tmp_path / "run").items() if content is not None}
    assert left == {*users, "configuration.yaml"}
    assert (tmp_path / "run/configuration.yaml").read_text() == "new"


def test_force_keeps_the_earlier_run_until_the_new_one_has_begun(tmp_path: Path) -> None:
    fill(tmp_path / "run", *OURS)
    before = snapshot(tmp_path)
    with RunFolder.open(tmp_path, "run", force=True) as folder:
        assert folder.states() == {}
        fill(folder.path, "metrics.jsonl", "run_logs/trainer.log")
        (folder.path / "run_logs/trainer.log").write_text("\nno such scene")
    after = snapshot(tmp_path)
    assert after.pop("run/run_logs/trainer.log") == b"run_logs/trainer.log\nno such scene"
    assert after == {name: content for name, content in before.items() if name in after}
    assert before.keys() - after.keys() <= {
        "run/run_logs/trainer.log",
        *(each for each in before if "4711" in each),
    }


def test_a_start_that_was_killed_has_replaced_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "run", "Ball/checkpoint.safetensors")
    killed = RunFolder.open(tmp_path, "run", force=True)
    assert killed._lock is not None
    killed._lock.release()
    with pytest.raises(UserError, match="is taken"):
        RunFolder.open(tmp_path, "run")
    with RunFolder.open(tmp_path, "run", resume=True) as folder:
        assert list(folder.states()) == ["Ball"]


@pytest.mark.skipif(os.name != "posix", reason="links to folders need rights elsewhere")
def test_force_does_not_follow_links_out_of_the_run(tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", "checkpoint.safetensors")
    fill(tmp_path / "run", "configuration.yaml")
    (tmp_path / "run" / "Ball").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with RunFolder.open(tmp_path, "run", force=True) as folder:
        folder.begin("new")
    assert (tmp_path / "elsewhere" / "checkpoint.safetensors").exists()


def test_initial_weights_are_of_any_folder(tmp_path: Path) -> None:
    fill(tmp_path / "old" / "teacher", "Ball/checkpoint.safetensors")
    with RunFolder.open(tmp_path / "new", "pupil", initialize_from=str(tmp_path / "old/teacher")) as run:
        assert run.initialize_from == tmp_path / "old" / "teacher"
    with pytest.raises(UserError, match="--force would overwrite"):
        RunFolder.open(tmp_path / "new", "pupil", force=True, initialize_from=str(tmp_path / "new/pupil"))


def test_a_missing_initial_run_is_refused_before_force_deletes(tmp_path: Path) -> None:
    fill(tmp_path / "run", *OURS)
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match="--initialize-from: no run 'teacher'"):
        RunFolder.open(tmp_path, "run", force=True, initialize_from="teacher")
    assert snapshot(tmp_path) == before


def test_inference_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "run", *OURS)
    before = snapshot(tmp_path)
    with RunFolder.open(tmp_path, "run", inference=True, force=True) as run:
        assert not run.writable
        for write in (run.begin, run.write_timers):
            with pytest.raises(RuntimeError, match="read only"):
                write("x")
        with pytest.raises(RuntimeError, match="read only"):
            run.write_status(TrainingStatus())
        with pytest.raises(RuntimeError, match="read only"):
            run.remove("Ball", ["Ball-500.safetensors"])
    assert snapshot(tmp_path) == before


def test_pruning_deletes_numbered_files_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path / "run", "precious", "Ball/checkpoint.safetensors")
    fill(tmp_path / "run" / "Ball", "Ball-1.safetensors", "Ball-1.onnx", "Ball-2.safetensors")
    numbered = ["Ball-1.safetensors", "Ball-1.onnx", "Ball-9.safetensors"]
    with RunFolder.open(tmp_path, "run", resume=True) as run:
        run.remove("Ball", [*numbered, "checkpoint.safetensors", "../precious", "..", ""])
    files = {name for name, content in snapshot(tmp_path / "run").items() if content is not None}
    assert files == {"precious", "Ball/checkpoint.safetensors", "Ball/Ball-2.safetensors"}


@pytest.mark.parametrize("run_id", ["", "..", "../run", "/nowhere/run", "x" * 300])
def test_impossible_run_ids_are_refused_for_writing_and_reading(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(UserError, match="run id"):
        RunFolder.open(tmp_path / "results", run_id)
    with pytest.raises(UserError, match=r"run id|no run"):  # a folder may be read
        RunFolder.read(tmp_path / "results", run_id)
    with pytest.raises(UserError, match=r"run id|no run"):
        RunFolder.open(tmp_path / "results", "run", initialize_from=run_id)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("name", ["", "..", "../Ball", "/Ball", "a\\b", "x" * 300])
def test_a_behavior_cannot_lead_out_of_the_run(tmp_path: Path, name: str) -> None:
    run = RunFolder.open(tmp_path, "run", inference=True)
    for path_of in (run.behavior, run.checkpoint, run.final_model, lambda name: run.numbered(name, 1)):
        with pytest.raises(UserError, match="behavior name"):
            path_of(name)


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, "run"), pytest.raises(UserError, match="run id 'run' is in use: process "):
        RunFolder.open(tmp_path, "run", force=True)


def test_a_failed_start_does_not_take_the_run_id(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, "run") as failed:
        failed.begin("x")
        fill(failed.path, "run_logs/Player-0.log")
    with pytest.raises(UserError, match=r"no run 'run' in '.*': its folder exists, but the run ended"):
        RunFolder.open(tmp_path, "run", resume=True)
    with RunFolder.open(tmp_path, "run") as again:
        assert again.writable
