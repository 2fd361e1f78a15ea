"""MLflow, Trackio and Weights & Biases: what is said to stand-ins for them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_service.errors import UserError
from trainer_service.running.metrics import Series, Summary
from trainer_service.running.metrics.trackers import TrackedRun
from trainer_service.running.metrics.trackers.mlflow_writer import MlflowWriter
from trainer_service.running.metrics.trackers.trackio_writer import TrackioWriter
from trainer_service.running.metrics.trackers.wandb_writer import WandbWriter

CONFIGURATION = {"behaviors": {"My Ball!": {"max_steps": 7, "network": {"units": [1, 2]}}}, "teams": {}}


def tracked(folder: Path, *, resumed: bool = False) -> TrackedRun:
    return TrackedRun("fast", folder, CONFIGURATION, resumed, folder / "memory.json")


def summary(step: int, value: float) -> Summary:
    series = {"Losses/Policy Loss": Series.of(value)}
    return Summary(behavior="My Ball!", step=step, wall_s=1.0, steps_per_s=1.0, series=series)


class MlflowStandIn:
    """Writes down how a client is called."""

    tracking_uri = "nowhere"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, *arguments, *keywords.values()))
            if name == "get_experiment_by_name":
                return None
            return "7" if name == "create_experiment" else SimpleNamespace(info=SimpleNamespace(run_id="r1"))

        return call


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> MlflowStandIn:
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    client = MlflowStandIn()
    entities = SimpleNamespace(Metric=lambda *fields: fields, Param=lambda *fields: fields)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: client))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return client


def test_mlflow_gets_options_as_parameters_and_values_as_metrics(
    mlflow: MlflowStandIn, tmp_path: Path
) -> None:
    writer = MlflowWriter(tracked(tmp_path))
    writer.open()
    writer.write(summary(1000, 0.5))
    writer.write_film("My Ball!", 1000, tmp_path / "film.gif")
    writer.close("failed")
    made, created, run, params, config, metrics, film, end = mlflow.calls
    assert made == ("get_experiment_by_name", "trainer-service")
    assert created == ("create_experiment", "trainer-service")
    assert run == ("create_run", "7", "fast")
    assert params[2] == [
        ("behaviors.My Ball_.max_steps", "7"),
        ("behaviors.My Ball_.network.units", "[1, 2]"),
    ]
    assert config == ("log_dict", "r1", CONFIGURATION, "configuration.yaml")
    ((name, value, _, step),) = metrics[2]
    assert (name, value, step) == ("My Ball_/Losses/Policy Loss", 0.5, 1000)
    assert film == ("log_artifact", "r1", str(tmp_path / "film.gif"), "films/My Ball!")
    assert end == ("set_terminated", "r1", "FAILED")


def test_mlflow_goes_on_with_a_resumed_run(mlflow: MlflowStandIn, tmp_path: Path) -> None:
    MlflowWriter(tracked(tmp_path)).open()
    mlflow.calls.clear()
    MlflowWriter(tracked(tmp_path, resumed=True)).open()
    assert [call[0] for call in mlflow.calls] == ["update_run", "log_dict"]
    assert mlflow.calls[0][1:] == ("r1", "RUNNING")


def test_trackio_gets_values_at_the_behaviors_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACKIO_PROJECT", raising=False)
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda values, step: calls.append((step, values)), finish=lambda: calls.append("finish")
    )
    stand_in = SimpleNamespace(
        init=lambda **values: calls.append(values) or run, Video=lambda path, format: (path, format)
    )
    monkeypatch.setitem(sys.modules, "trackio", stand_in)
    for resumed in (False, True):
        writer = TrackioWriter(tracked(tmp_path, resumed=resumed))
        writer.open()
    writer.write(summary(1000, 0.5))
    writer.write_film("My Ball!", 1000, tmp_path / "film.gif")
    writer.close()
    first, again, *others = calls
    assert first == {"project": "trainer-service", "name": "fast", "config": CONFIGURATION, "resume": "never"}
    assert again == {**first, "resume": "allow"}
    assert others == [
        (1000, {"My Ball!/Losses/Policy Loss": 0.5}),
        (1000, {"My Ball!/Videos_Test": (str(tmp_path / "film.gif"), "gif")}),
        "finish",
    ]


class WandbStandIn:
    """Writes down how it is called, as the package and as its run."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.started: list[dict[str, Any]] = []
        self.mode = "offline"
        self.Settings = lambda **values: values
        self.Video = lambda path, format: ("film", path, format)

    def setup(self) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(mode=self.mode))

    def login(self, *, prompt: bool) -> bool:
        assert not prompt
        return False

    def init(self, **values: Any) -> Any:
        self.started.append(values)
        note = self.calls.append
        return SimpleNamespace(
            dir="somewhere/run/files",
            offline=True,
            define_metric=lambda name, **how: note(("define", name, how)),
            log=lambda values: note(("log", values)),
            finish=lambda exit_code: note(("finish", exit_code)),
        )


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> WandbStandIn:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    stand_in = WandbStandIn()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return stand_in


def test_values_are_drawn_over_the_behaviors_own_steps(wandb: WandbStandIn, tmp_path: Path) -> None:
    writer = WandbWriter(tracked(tmp_path))
    writer.open()
    writer.write(summary(1000, 0.5))
    writer.write_evaluation(summary(2000, 0.25))
    writer.write_film("My Ball!", 2000, tmp_path / "film-2000.gif")
    writer.close("interrupted")
    assert wandb.calls == [
        ("define", "My Ball!/Step", {"hidden": True}),
        ("define", "My Ball!/*", {"step_metric": "My Ball!/Step"}),
        ("log", {"My Ball!/Step": 1000, "My Ball!/Losses/Policy Loss": 0.5}),
        ("log", {"My Ball!/Step": 2000, "My Ball!/Losses/Policy Loss": 0.25}),
        (
            "log",
            {"My Ball!/Step": 2000, "My Ball!/Videos_Test": ("film", str(tmp_path / "film-2000.gif"), "gif")},
        ),
        ("finish", 255),
    ]
    (started,) = wandb.started
    assert (started["name"], started["project"]) == ("fast", "trainer-service")
    assert started["config"] == CONFIGURATION


def test_a_resumed_run_goes_on_under_its_id(
    wandb: WandbStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for resumed in (False, True, False):
        WandbWriter(tracked(tmp_path, resumed=resumed)).open()
    first, again, anew = (each["id"] for each in wandb.started)
    assert first == again != anew
    assert {each["project"] for each in wandb.started} == {"mine"}


def test_nobody_is_asked_to_log_in(wandb: WandbStandIn, tmp_path: Path) -> None:
    wandb.mode = "online"
    with pytest.raises(UserError, match="not logged in: run 'wandb login'"):
        WandbWriter(tracked(tmp_path)).open()
    assert not wandb.started
