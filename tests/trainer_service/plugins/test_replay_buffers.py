"""Replay buffers of plugins: ``hyperparameters.replay.type``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_trainer import learner_of, settings_of
from installed_plugins import install_example

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.config.hyperparameters.off_policy import GroupSettings, ReplayHyperparameters
from trainer_service.learning.replay.transitions import TransitionReplay
from trainer_service.plugins import register
from unity_bridge import plugins
from unity_bridge.arrays import Rows
from unity_bridge.errors import PluginError

SINGLE = ("sac", "crossq", "dqn", "ddpg", "td3")
FROM_REPLAY = [name for name, kind in HYPERPARAMETERS.items() if issubclass(kind, ReplayHyperparameters)]


class Newest(TransitionReplay):
    """Draws the newest row alone."""

    def __init__(self, *arguments: Any, loud: bool = False) -> None:
        super().__init__(*arguments)
        self.loud = loud

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Rows, None]:
        return np.full(count, (self.oldest + len(self) - 1) % self.capacity), None


@pytest.fixture
def registered() -> Iterator[None]:
    register("trainer_service.replay_buffers", "newest", Newest)
    register("trainer_service.replay_buffers", "list", list)
    yield
    plugins._REGISTERED.clear()


def learner(trainer_type: str, **replay: Any) -> Any:
    values = settings_of(trainer_type)
    values["hyperparameters"] |= (
        {"replay": replay, "n_step": 1} if trainer_type not in ("sac", "crossq") else {"replay": replay}
    )
    return learner_of(values)


@pytest.mark.parametrize("trainer_type", FROM_REPLAY)
def test_learners_of_single_agents_take_one_and_others_refuse_it(trainer_type: str, registered: None) -> None:
    if trainer_type in SINGLE:
        made = learner(trainer_type, type="newest", kwargs={"loud": True})
        assert isinstance(made.replay.buffer, Newest)
        assert made.replay.buffer.loud
        return
    assert issubclass(HYPERPARAMETERS[trainer_type], GroupSettings)
    with pytest.raises(ValueError, match=r"expected uniform or prioritized, .* got newest"):
        learner(trainer_type, type="newest")


def test_memory_and_n_steps_are_refused(registered: None) -> None:
    hyper = {"replay": {"type": "newest"}, "n_step": 3}
    with pytest.raises(ValueError, match="as replay of type newest draws single transitions"):
        TrainerSettings.model_validate({"trainer_type": "dqn", "hyperparameters": hyper})
    network = {"memory": {"memory_size": 4, "sequence_length": 4}}
    hyper = {"replay": {"type": "newest"}}
    with pytest.raises(ValueError, match="as replay of type newest draws single transitions"):
        TrainerSettings.model_validate(
            {"trainer_type": "sac", "hyperparameters": hyper, "network_settings": network}
        )


def test_what_is_no_replay_buffer_is_refused_by_name(registered: None) -> None:
    with pytest.raises(PluginError, match=r"replay buffer 'list' of module .* failed: TypeError"):
        learner("sac", type="list")
    with pytest.raises(PluginError, match=r"replay buffer 'newest' of module .* failed: TypeError.*'quiet'"):
        learner("sac", type="newest", kwargs={"quiet": True})
    with pytest.raises(
        ValueError,
        match=r"one of uniform, prioritized, hindsight, list, newest, got 'newset'",
    ):
        learner("sac", type="newset")


def test_the_templates_buffer_draws_young_rows_more_often(site: Path) -> None:
    install_example(site)
    buffer = learner("sac", type="recent", kwargs={"power": 3.0}).replay.buffer
    buffer._size = buffer.capacity
    buffer._head = oldest = 7
    rows, weights = buffer.draw(4000, np.random.default_rng(1), 1.0)
    ages = buffer.capacity - 1 - (rows - oldest) % buffer.capacity
    # The mean of u³ is a quarter.
    assert ages.mean() == pytest.approx(buffer.capacity / 4, rel=0.05)
    assert (ages.min(), weights) == (0, None)
