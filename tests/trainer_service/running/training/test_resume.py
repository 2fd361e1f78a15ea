"""Runs that stop and go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from run_files import assert_same_state, checkpoint, metrics

from trainer_service.errors import UserError
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.runs.checkpoint import save_checkpoint
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.training.warm_start import checkpoints_to_resume

EPISODE = 18  # agent steps of one episode of the treadmill's three agents

# Updates come after 4 episodes, so a stop after 8 lies between two rollouts and one after 6 in a rollout.
AT_AN_UPDATE, IN_A_ROLLOUT = 8 * EPISODE, 6 * EPISODE


def step(run_id: str) -> int:
    saved: int = checkpoint(run_id, "Treadmill")["step"]
    return saved


def test_a_run_that_is_resumed_goes_on_bit_for_bit(train) -> None:
    train("straight", 2 * IN_A_ROLLOUT)
    train("parted", IN_A_ROLLOUT)
    assert checkpoint("parted", "Treadmill")["algorithm"]["collected"] is not None
    train("parted", 2 * IN_A_ROLLOUT, "--resume")
    assert step("parted") == 2 * IN_A_ROLLOUT
    assert_same_state("parted", "straight", "Treadmill")
    assert metrics("parted") == metrics("straight")


def test_a_finished_run_says_that_nothing_is_left_to_learn(train) -> None:
    warning = (
        f"'Treadmill' has used its max_steps of {EPISODE}: nothing to learn. Raise max_steps to continue."
    )
    assert warning not in train("done", EPISODE).out
    assert warning in train("done", EPISODE, "--resume").out
    assert step("done") == EPISODE
    assert "nothing to learn" not in train("done", 2 * EPISODE, "--resume").out
    assert [line["step"] for line in metrics("done")] == [EPISODE, 2 * EPISODE]


def test_a_budget_of_episodes_counts_on_when_resumed(train) -> None:
    train("whole", 1000, max_episodes=24)
    said = train("parts", 1000, max_episodes=12)
    assert step("parts") == 4 * EPISODE  # three agents' episodes end together
    train("parts", 1000, "--resume", max_episodes=24)
    assert step("parts") == 8 * EPISODE
    assert_same_state("whole", "parts", "Treadmill")
    assert "Learning was interrupted" not in said.out


def test_init_path_does_not_undo_what_a_run_has_learned(train) -> None:
    train("teacher", AT_AN_UPDATE)
    weights = "results/teacher/Treadmill/checkpoint.safetensors"
    said = train("pupil", AT_AN_UPDATE, init_path=weights)
    assert f"Starting 'Treadmill' from step 0 with the weights of '{weights}'." in said.out
    said = train("pupil", 2 * AT_AN_UPDATE, "--resume", init_path=weights)
    assert f"Resuming 'Treadmill' from step {AT_AN_UPDATE}." in said.out
    assert "'Treadmill' resumes from its own checkpoint: init_path is for its start only." in said.out


def flip(path: Path) -> None:
    """Changes one bit in the middle of a file, as a failing disk does."""
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)


OLDER = 6 * EPISODE
"""The checkpoint before the newest, of those that come every second episode."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the first test that needs ``saved`` leaves it for the others."""
    return tmp_path_factory.mktemp("kept") / "workplace"


@pytest.fixture
def saved(train, workplace: Path, kept: Path) -> Path:
    """The folder of a behavior with checkpoints after 2, 4, 6 and 8 episodes, and its configuration."""
    if kept.exists():
        shutil.copytree(kept, workplace, dirs_exist_ok=True)
    else:
        train("run", AT_AN_UPDATE, checkpoint_interval=2 * EPISODE)
        shutil.copytree("results", kept / "results")
        shutil.copy("config.yaml", kept)
    return Path("results/run/Treadmill")


def listed(run_id: str = "run") -> list[int]:
    status = json.loads(Path("results", run_id, "run_logs/training_status.json").read_text())
    return [record["steps"] for record in status["Treadmill"]["checkpoints"]]


def test_a_run_with_a_damaged_checkpoint_resumes_from_the_previous(train, saved: Path) -> None:
    for path in (saved / "checkpoint.safetensors", saved / f"Treadmill-{AT_AN_UPDATE}.safetensors"):
        flip(path)
    said = train("run", 2 * AT_AN_UPDATE, "--resume", checkpoint_interval=2 * EPISODE)
    (warning,) = [line for line in said.out.splitlines() if f"step {OLDER}." in line and "checkpoint" in line]
    assert f"'{saved}/checkpoint.safetensors'" in warning
    assert f"'Treadmill' continues from '{saved}/Treadmill-{OLDER}.safetensors'" in warning
    assert f"Resuming 'Treadmill' from step {OLDER}." in said.out
    assert step("run") == 2 * AT_AN_UPDATE
    aside = {path.name for path in Path("results/run/set-aside-1").rglob("*")}
    assert {f"Treadmill-{AT_AN_UPDATE}.safetensors", f"Treadmill-{AT_AN_UPDATE}.onnx"} <= aside


def test_a_checkpoint_that_the_system_does_not_give_is_left_alone(
    saved: Path, mlagents_style, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("trainer_service.running.runs.checkpoint.read_values", locked)
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--run-id=run", "--resume")
    assert said.code == 2
    assert f"checkpoint '{saved}/checkpoint.safetensors' cannot be read: Permission denied" in said.err
    assert "damaged" not in said.err
    assert not Path("results/run/set-aside-1").exists()


def test_a_run_without_readable_checkpoints_is_refused_untouched(train, saved: Path, mlagents_style) -> None:
    for path in saved.glob("*.safetensors"):
        flip(path)
    before = {path: path.read_bytes() for path in saved.iterdir()}
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--run-id=run", "--resume")
    assert said.code == 2
    assert "none of the 5 checkpoints of 'Treadmill' can be read" in said.err
    assert {path: path.read_bytes() for path in saved.iterdir()} == before
    for path in saved.glob("*.safetensors"):
        path.unlink()
    for path in saved.glob("*.onnx"):
        path.unlink()
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--run-id=run", "--resume")
    assert said.code == 2
    assert "holds no checkpoint to continue from" in said.err


REFUSED_STARTS = {
    "another scene": (["--env=sim:3dball"], {}),
    "no such scene": (["--env=sim:bsic"], {}),
    "other networks": ([], {"network_settings": {"hidden_units": 12}}),
    "another trainer type": ([], {"trainer_type": "dqn", "hyperparameters": {}}),
}


@pytest.mark.parametrize(
    ("flag", "change"),
    [
        *(("--resume", each) for each in REFUSED_STARTS),
        *(("--force", each) for each in list(REFUSED_STARTS)[:2]),
    ],
)
def test_a_refused_start_leaves_the_run_as_it_was(
    mlagents_style, configure, workplace: Path, flag: str, change: str
) -> None:
    arguments, settings = REFUSED_STARTS[change]
    given = {"max_steps": 100, "hyperparameters": {"batch_size": 16, "buffer_size": 64}}
    line = ("learn", configure("Basic", **given), "--run-id=run")
    assert mlagents_style(*line, "--env=sim:basic").code == 0

    def files() -> dict[Path, bytes]:
        kept = (path for path in Path("results/run").rglob("*") if "run_logs" not in path.parts)
        return {path: path.read_bytes() for path in kept if path.is_file() and path.name != ".lock"}

    before = files()
    configure("Basic", **{**given, **settings})
    assert mlagents_style(*line, "--env=sim:basic", *arguments, flag).code == 2
    assert files() == before
    said = mlagents_style("learn", "--run-id=run", "--resume", "--max-steps=150")
    assert said.code == 0, said.err
    assert "Resuming 'Basic' from step " in said.out


def test_the_configuration_of_a_run_starts_another_and_overwrites_none(train, mlagents_style) -> None:
    train("run", EPISODE)
    train("run", EPISODE, "--force")
    train("run", 2 * EPISODE, "--resume")
    configuration = "results/run/configuration.yaml"
    assert mlagents_style("learn", configuration, "--run-id=again").code == 0
    said = mlagents_style("learn", configuration)
    assert said.code == 2
    assert "run id 'run' is taken" in said.err


def test_resuming_from_an_older_checkpoint_keeps_the_newer(train, saved: Path) -> None:
    straight = metrics("run")
    newer = {
        path.name: path.read_bytes() for path in saved.glob("*.safetensors") if path.stem.endswith("144")
    }
    newest = (saved / "checkpoint.safetensors").read_bytes()
    said = train("run", 4 * EPISODE, "--resume", str(4 * EPISODE), checkpoint_interval=2 * EPISODE)
    assert f"Resuming 'Treadmill' from step {4 * EPISODE}." in said.out
    aside = Path("results/run/set-aside-1/Treadmill")
    assert f"are in '{aside.parent}' from now on" in said.out
    assert {path.name for path in aside.iterdir()} == {
        "checkpoint.safetensors", "Treadmill-108.safetensors", "Treadmill-108.onnx",
        "Treadmill-144.safetensors", "Treadmill-144.onnx",
    }  # fmt: skip
    assert (aside / "checkpoint.safetensors").read_bytes() == newest
    assert all((aside / name).read_bytes() == content for name, content in newer.items())
    assert listed() == [2 * EPISODE, 4 * EPISODE]
    assert len((aside.parent / "metrics.jsonl").read_text().splitlines()) == len(straight)
    # From there it goes as it went before, and what --resume alone means is the checkpoint that was chosen.
    train("run", AT_AN_UPDATE, "--resume", checkpoint_interval=2 * EPISODE)
    assert metrics("run") == straight


def test_behaviors_go_on_each_from_its_own_checkpoint(make_behavior, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name, steps in {"Ball": (100, 200, 300), "Goal": (90, 180)}.items():
        behavior = make_behavior(name=name)
        for behavior.step in steps:
            save_checkpoint(
                checkpoint_of(behavior), folder.numbered(name, behavior.step), folder.checkpoint(name)
            )

    def chosen(which: bool | int | str) -> dict[str, int]:
        return {name: start.source.step for name, start in checkpoints_to_resume(folder, which).items()}

    assert chosen(True) == {"Ball": 300, "Goal": 180}
    assert chosen(200) == {"Ball": 200, "Goal": 180}
    flip(folder.checkpoint("Ball"))
    assert chosen(True) == {"Ball": 300, "Goal": 180}
    flip(folder.numbered("Ball", 300))
    assert chosen(True) == {"Ball": 200, "Goal": 180}
    with pytest.raises(UserError, match="Goal: 90, 180"):
        checkpoints_to_resume(folder, 150)


def test_a_damaged_list_of_checkpoints_is_made_anew(train, saved: Path) -> None:
    status = Path("results/run/run_logs/training_status.json")
    damaged = status.read_bytes()[:-100]
    status.write_bytes(damaged)
    said = train("run", AT_AN_UPDATE + 2 * EPISODE, "--resume", checkpoint_interval=2 * EPISODE)
    assert f"cannot read '{status}'" in said.out
    assert "it was moved to 'results/run/set-aside-1'" in said.out
    assert Path("results/run/set-aside-1/run_logs", status.name).read_bytes() == damaged
    assert listed() == [2 * EPISODE * count for count in range(1, 6)]
