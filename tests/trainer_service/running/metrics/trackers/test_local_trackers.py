"""MLflow and Trackio: what is said to stand-ins, and what they keep on this machine where they are installed."""

import json
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_service.running.metrics import Series, Summary
from trainer_service.running.metrics.trackers import TrackedRun
from trainer_service.running.metrics.trackers.mlflow_writer import MlflowWriter
from trainer_service.running.metrics.trackers.trackio_writer import TrackioWriter

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


@pytest.mark.process
@pytest.mark.filterwarnings("ignore")  # those of the package are its own affair
def test_mlflow_keeps_it_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    for resumed, step in ((False, 1000), (True, 2000)):
        writer = MlflowWriter(tracked(tmp_path, resumed=resumed))
        writer.open()
        writer.write(summary(step, step / 1000))
        writer.close("interrupted")
    client = package.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("trainer-service").experiment_id])
    assert (run.info.run_name, run.info.status) == ("fast", "KILLED")
    assert run.data.params["behaviors.My Ball_.max_steps"] == "7"
    history = client.get_metric_history(run.info.run_id, "My Ball_/Losses/Policy Loss")
    assert [(each.step, each.value) for each in history] == [(1000, 1.0), (2000, 2.0)]


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


@pytest.mark.filterwarnings("ignore")
def test_trackio_keeps_it_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip("trackio")
    writer = TrackioWriter(tracked(tmp_path))
    writer.open()
    writer.write(summary(1000, 0.5))
    writer.close()
    database = sqlite3.connect(tmp_path / "trackio" / "trainer-service.db")
    (row,) = database.execute("select run_name, step, metrics from metrics").fetchall()
    database.close()
    assert (row[0], row[1], json.loads(row[2])) == ("fast", 1000, {"My Ball!/Losses/Policy Loss": 0.5})
