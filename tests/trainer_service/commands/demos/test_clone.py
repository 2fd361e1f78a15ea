"""``mlagents-style clone``: runs that learn from demonstrations alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainer_service
from trainer_service.commands.demos.cloning import OfflineCloning, cloning_settings, demonstrated_behavior
from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.training.compute import choose_device
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, ObservationSpec

VECTOR = ObservationSpec("vector", (2,))
NETWORK: dict[str, Any] = {"hidden_units": 32, "num_layers": 1}


def rows(run: str) -> list[dict[str, Any]]:
    path = Path("results", run, "metrics.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(mlagents_style, scene: str, episodes: int, *flags: object) -> None:
    line = ("record-demo", f"sim:{scene}", "--policy=heuristic", "--output=expert.demo")
    said = mlagents_style(*line, f"--episodes={episodes}", *flags)
    assert said.code == 0, said.err


def episodes_of(shown, count: int, steps: int = 20) -> list[Any]:
    """Episodes whose continuous action is half the first number, and whose choice is the sign of the second."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(count):
        seen = rng.uniform(-1.0, 1.0, size=(steps + 1, 2)).astype(np.float32)
        found.append(shown([seen], 0.5 * seen[:steps, :1], (seen[:steps, 1:] > 0).astype(np.int64)))
    return found


def prepared(path: Path, *, trainer: str = "ppo", **network: Any) -> tuple[OfflineCloning, Behavior]:
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": trainer,
            "hyperparameters": {"batch_size": 16, "learning_rate": 3e-3},
            "network_settings": {**NETWORK, **network},
        }
    )
    name, spec = demonstrated_behavior(path)
    behavior = Behavior(name, spec, cloning_settings(name, settings, path), Compute(choose_device("cpu"), 1))
    return OfflineCloning(behavior), behavior


@pytest.mark.process
@pytest.mark.probe
def test_a_cloned_run_scores_as_its_expert_exports_and_is_learned_on(mlagents_style, configure) -> None:
    record(mlagents_style, "basic", 20)
    configure("Basic")
    line = ["clone", "config.yaml", "--demo=expert.demo", "--run-id=shown", "--seed=1", "--epochs=150"]
    said = mlagents_style(*line)
    assert said.code == 0, said.err
    assert "'Basic'" in said.out
    assert "18 episodes; 2 episodes" in said.out
    first, *_, last = rows("shown")
    assert last["held_out_loss"] < 0.5 * first["held_out_loss"]
    assert last["held_out_accuracy"] == 1.0
    assert len(rows("shown")) == 150
    said = mlagents_style("evaluate", "shown", "--env=sim:basic", "--episodes=100", "--json")
    assert json.loads(said.out)["behaviors"]["Basic"]["mean_return"] == pytest.approx(0.93, abs=0.001)
    Path("results/shown/Basic.onnx").unlink()
    said = mlagents_style("export", "shown")
    assert (said.code, Path("results/shown/Basic.onnx").is_file()) == (0, True)
    said = mlagents_style(
        "learn", "config.yaml", "--initialize-from=shown", "--run-id=further", "--env=sim:basic"
    )
    assert said.code == 0, said.err
    assert "with the weights of 'shown'" in said.out
    assert rows("further")[0]["mean_return"] > 0.5
    said = mlagents_style("status", "shown")
    assert "finished" in said.out
    said = mlagents_style(*line)
    assert said.code == 2
    assert "run id 'shown' is taken" in said.err
    assert "nothing was learned" not in said.err


@pytest.mark.process
@pytest.mark.probe
def test_continuous_actions_are_cloned_from_python(mlagents_style) -> None:
    record(mlagents_style, "3dball", 6, "--max-episode-steps=200")
    config = {"trainer_type": "sac", "network_settings": {**NETWORK, "normalize": True}}
    outcome = trainer_service.clone("expert.demo", config, run_id="balls", max_steps=10_000, seed=1)
    assert outcome.steps == {"3DBall": 10_000}
    first, *_, last = rows("balls")
    assert last["held_out_loss"] < 0.5 * first["held_out_loss"]
    assert "held_out_accuracy" not in last
    policy = trainer_service.load_policy(outcome)
    assert policy.step == 10_000
    score = trainer_service.evaluate(outcome, "sim:3dball", episodes=3)["3DBall"]
    assert (len(score.returns), score.mean_return > 0.0) == (3, True)


def test_held_out_episodes_are_not_learned_from(write_demo, shown) -> None:
    spec = BehaviorSpec((VECTOR,), ActionSpec(1, (2,)))
    path = write_demo(spec, *episodes_of(shown, 20))
    cloning, behavior = prepared(path)
    assert cloning.held_out is not None
    assert (cloning.training.lengths.sum(), cloning.held_out.lengths.sum()) == (360, 40)
    ours = {tuple(row) for row in cloning.training.steps.observations[0].tolist()}
    assert not ours & {tuple(row) for row in cloning.held_out.steps.observations[0].tolist()}
    losses = [cloning.learn_epoch()["Losses/Held-out Loss"] for _ in range(6)]
    assert losses[-1] < 0.5 * losses[0]
    assert behavior.step == 6 * 360


@pytest.mark.parametrize("trainer", ["ppo", "sac"])
def test_memory_is_scored_from_the_start_of_each_episode(write_demo, shown, trainer: str) -> None:
    """A cue that only the first observation shows decides every action."""
    shows = []
    for number in range(10):
        seen = np.zeros((7, 2), np.float32)
        seen[0, number % 2] = 1.0
        shows.append(shown([seen], None, np.full((6, 1), number % 2)))
    path = write_demo(BehaviorSpec((VECTOR,), ActionSpec(0, (2,))), *shows)
    cloning, _ = prepared(path, trainer=trainer, memory={"sequence_length": 4, "memory_size": 16})
    scores = [cloning.learn_epoch()["Policy/Held-out Accuracy"] for _ in range(25)]
    assert scores[-1] == 1.0


def test_normalizer_sees_the_training_demonstrations(write_demo, shown) -> None:
    path = write_demo(BehaviorSpec((VECTOR,), ActionSpec(1, (2,))), *episodes_of(shown, 10))
    cloning, behavior = prepared(path, normalize=True)
    (normalizer,) = behavior.learner.actor.normalizer.of_sensors
    assert normalizer is not None
    seen = cloning.training.steps.observations[0]
    assert normalizer.mean.numpy() == pytest.approx(seen.mean(dim=0).numpy(), abs=0.02)
    assert normalizer.rows >= len(seen)


def test_weights_of_the_smallest_held_out_loss_are_kept(write_demo, shown) -> None:
    path = write_demo(BehaviorSpec((VECTOR,), ActionSpec(1, (2,))), *episodes_of(shown, 10))
    cloning, behavior = prepared(path)
    assert cloning.restore_best() == 0
    assert cloning.held_out is not None
    # Demonstrations that contradict what is learned: the loss on them rises in the end.
    cloning.held_out.steps.discrete_actions.copy_(1 - cloning.held_out.steps.discrete_actions)
    losses = [cloning.learn_epoch()["Losses/Held-out Loss"] for _ in range(8)]
    best = int(np.argmin(losses))
    assert best < 7
    assert cloning.restore_best() == 180 * (1 + best)
    assert behavior.learner.cloning.evaluate(cloning.held_out).loss == pytest.approx(losses[best])


def test_a_global_state_is_not_learned_from(write_demo, shown) -> None:
    state = ObservationSpec(GLOBAL_STATE, (3,))
    shows = [
        shown([np.full((each.steps + 1, 3), 1e6, np.float32), *each.observations], each.continuous)
        for each in episodes_of(shown, 5)
    ]
    cloning, behavior = prepared(
        write_demo(BehaviorSpec((state, VECTOR), ActionSpec(1)), *shows), normalize=True
    )
    assert [tuple(sensor.shape[1:]) for sensor in cloning.training.steps.observations] == [(2,)]
    losses = [cloning.learn_epoch()["Losses/Held-out Loss"] for _ in range(5)]
    assert losses[-1] < losses[0]
    assert behavior.spec.observation_specs == (state, VECTOR)


def test_recordings_of_different_behaviors_are_refused_by_name(write_demo, shown, tmp_path: Path) -> None:
    first = write_demo(BehaviorSpec((VECTOR,), ActionSpec(1, (2,))), *episodes_of(shown, 1), file="a.demo")
    more = BehaviorSpec((VECTOR,), ActionSpec(1, (3,)))
    second = write_demo(more, *episodes_of(shown, 1), file="b.demo")
    with pytest.raises(
        UserError, match=r"b\.demo' was recorded with .*\[3\], the behavior has .*\[2\], by '.*a\.demo"
    ):
        demonstrated_behavior(tmp_path)
    second.write_bytes(first.read_bytes().replace(b"Shown", b"Other"))
    with pytest.raises(
        UserError, match=r"recordings of one behavior, got 'Shown' in .*a\.demo' and 'Other' in"
    ):
        demonstrated_behavior(tmp_path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            "--demo nowhere.demo",
            "'nowhere.demo' does not exist; expected a recording (.demo) or a folder of them",
        ),
        ("--demo empty", "'empty': expected a folder with recordings (.demo), it holds none"),
        ("config.yaml --demo expert.demo", "The behavior name 'Shown' has not been specified"),
        ("poca.yaml --demo expert.demo", "behavior 'Shown': trainer type 'poca' learns groups"),
        ("sic.yaml --demo expert.demo", "behavior 'Shown': trainer type 'sic' learns groups"),
        ("random.yaml --demo expert.demo", "trainer type 'random' does not learn from demonstrations"),
        ("--demo expert.demo --epochs 0", "epochs: expected at least 1, got 0"),
        ("--demo expert.demo --max-steps 0", "max_steps: expected at least 1, got 0"),
        ("--demo expert.demo --epochs 1 --max-steps 1", "not allowed with argument"),
    ],
)
def test_what_cannot_be_cloned_is_named(
    mlagents_style, configure, write_demo, shown, flags: str, words: str
) -> None:
    write_demo(BehaviorSpec((VECTOR,), ActionSpec(1, (2,))), *episodes_of(shown, 1))
    Path("empty").mkdir()
    configure("Another")
    for trainer in ("poca", "sic", "random"):
        Path(f"{trainer}.yaml").write_text(f"default_settings: {{trainer_type: {trainer}}}\n")
    said = mlagents_style("clone", *flags.split())
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err
    assert not Path("results").exists()


@pytest.mark.probe
def test_a_learning_rate_that_diverges_saves_nothing(mlagents_style, write_demo, shown) -> None:
    episodes = [shown(each.observations, each.continuous) for each in episodes_of(shown, 5)]
    write_demo(BehaviorSpec((VECTOR,), ActionSpec(1, ())), *episodes)
    Path("c.yaml").write_text(
        "default_settings: {hyperparameters: {learning_rate: 1.0e+38, batch_size: 8, max_grad_norm: null}}\n"
    )
    said = mlagents_style("clone", "c.yaml", "--demo=expert.demo", "--run-id=wild")
    assert said.code == 2
    assert "behavior 'Shown' diverged" in said.err
    assert not list(Path("results/wild").rglob("*.safetensors"))
