"""Settings of a run's simulators, as every bridge of the run gets them."""

from __future__ import annotations

from typing import NoReturn

import pytest

from trainer_service.commands.doctor import exchange
from trainer_service.config import RunOptions
from trainer_service.distributed.worker import RolloutWorker
from trainer_service.running.collection.launching import bridge_settings
from trainer_service.running.evaluation import simulator
from unity_bridge.programs.executables import Command
from unity_bridge.server.settings import BridgeSettings

OPTIONS = RunOptions.model_validate({"env_settings": {"env_path": "sim:basic", "picture_layout": "chw"}})


class NotOpened(Exception):
    """Raised in the place of opening a bridge, with its settings."""


def refuse(settings: BridgeSettings) -> NoReturn:
    raise NotOpened(settings)


def evaluate() -> None:
    with simulator.EvaluationSimulator(OPTIONS, Command(env="sim:basic", executable=("python",)), 1).open():
        pass


BRIDGES = {
    "run": lambda: refuse(bridge_settings(OPTIONS, None, lambda number: ())),
    "worker": lambda: RolloutWorker(0, OPTIONS, make_bridge=refuse),
    "evaluation": evaluate,
    "doctor": lambda: exchange.exchange_messages("sim:basic", OPTIONS, timeout_s=1.0),
}


@pytest.mark.parametrize("bridge", BRIDGES)
def test_every_bridge_of_a_run_knows_its_picture_layout(bridge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (simulator, exchange):
        monkeypatch.setattr(module, "Bridge", refuse)
    with pytest.raises(NotOpened) as opened:
        BRIDGES[bridge]()
    assert opened.value.args[0].picture_layout == "chw"
