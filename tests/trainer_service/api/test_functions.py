"""The functions that a program calls, on a run that they made."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import trainer_service
from trainer_service.errors import UserError

pytestmark = pytest.mark.process

QUICK = {
    "trainer_type": "ppo",
    "max_steps": 1000,
    "summary_freq": 500,
    "hyperparameters": {"batch_size": 64, "buffer_size": 256},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> trainer_service.Outcome:
    """A short run on two copies of CartPole."""
    return trainer_service.train(
        QUICK, env="gym:CartPole-v1", env_args=["--agents", "2"], run_id="cart", seed=1,
        results_dir=tmp_path_factory.mktemp("results"),
    )  # fmt: skip


def test_stepping_by_hand_gives_what_evaluate_gives(run: trainer_service.Outcome) -> None:
    scores = trainer_service.evaluate(run, env_args=[], episodes=4, seed=11)
    env = gymnasium.make("CartPole-v1")
    agent = trainer_service.load_policy(run).wrap(env)
    returns = []
    for episode in range(4):
        observation, _ = env.reset(seed=11 if episode == 0 else None)
        over, total = False, 0.0
        while not over:
            action, _ = agent.predict(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    assert scores["CartPole-v1"].returns == tuple(returns)
    assert scores["CartPole-v1"].mean_return == np.mean(returns)


def test_metrics_are_columns_of_equal_length(run: trainer_service.Outcome) -> None:
    table = trainer_service.load_metrics(run)
    assert table["behavior"].tolist() == ["CartPole-v1"] * 2
    assert table["step"].tolist() == [500, 1000]
    assert np.isnan(table["mean_group_return"]).all()
    assert {len(column) for column in table.values()} == {2}
    assert trainer_service.load_metrics(run, "CartPole-v1").keys() == table.keys()
    with pytest.raises(UserError, match="no summary of behavior 'Cart'; it has those of CartPole-v1"):
        trainer_service.load_metrics(run, "Cart")


def test_a_film_is_as_long_as_its_episodes(run: trainer_service.Outcome, tmp_path: Path) -> None:
    from PIL import Image

    path = trainer_service.record(run, tmp_path / "film.gif", episodes=2, seed=3)
    returns = trainer_service.evaluate(run, env_args=["--agents", "1"], episodes=2, seed=3)[
        "CartPole-v1"
    ].returns
    with Image.open(path) as film:
        seconds = sum(_durations(film)) / 1000
    assert seconds == pytest.approx((sum(returns) + 2) / 50, rel=0.1)  # CartPole shows 50 steps a second
    with pytest.raises(UserError, match=r"expected a \.gif or \.mp4 file"):
        trainer_service.record(run, tmp_path / "film.txt")


def _durations(film) -> list[float]:
    found = []
    for frame in range(film.n_frames):
        film.seek(frame)
        found.append(film.info["duration"])
    return found


def test_models_are_written_where_they_are_wanted(run: trainer_service.Outcome, tmp_path: Path) -> None:
    assert trainer_service.export(run, output=tmp_path / "a.onnx") == {"CartPole-v1": tmp_path / "a.onnx"}
    assert (tmp_path / "a.onnx").stat().st_size > 0


def test_tab_completion_knows_every_name() -> None:
    assert set(trainer_service.__all__) <= set(dir(trainer_service))
    for name in trainer_service.__all__:
        assert getattr(trainer_service, name) is not None
