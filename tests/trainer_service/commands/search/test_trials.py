"""The loop of a sweep, with jobs that write a run's files at once instead of training."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_files import write_end

from trainer_service.commands.common.jobs import Job
from trainer_service.commands.search.space import read_space, with_values
from trainer_service.commands.search.trials import SweepResult, SweepSettings, run_sweep
from trainer_service.errors import UserError
from trainer_service.running.runs.lock import FileLock
from trainer_service.running.training.stop_signals import StopSignals

pytest.importorskip("optuna")

RATE = "behaviors.Basic.hyperparameters.learning_rate"
SPACE = {RATE: {"low": 0.001, "high": 0.1}}
CONFIGURATION = {
    "behaviors": {"Basic": {"trainer_type": "ppo", "max_steps": 900, "summary_freq": 100}},
    "env_settings": {"env_path": "sim:basic"},
}


def write_run(
    path: Path,
    returns: Sequence[float | None],
    *,
    ended_by: str | None,
    metric: str,
    configuration: Mapping[str, Any] | None = None,
) -> None:
    """Writes a run with a summary every 100 steps. ``ended_by``: as in timers.json; None for a killed run."""
    (path / "Basic").mkdir(parents=True, exist_ok=True)
    if configuration is not None:
        (path / "configuration.yaml").write_text(yaml.safe_dump(configuration))
    rows = [
        {"behavior": "Basic", "step": 100 * number, "wall_s": 0.1, metric: value}
        for number, value in enumerate(returns, start=1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "Basic" / "checkpoint.safetensors").touch()
    end = "" if ended_by is None else "interrupted" if ended_by.startswith("SIG") else "finished"
    write_end(path, end, ended_by or "", final=ended_by is not None, Basic=100 * len(returns))


@dataclass
class Plan:
    """What a job does: the summaries that it writes, and how it ends."""

    returns: Sequence[float | None]
    exit_code: int | None = 0
    """None runs until it is asked to end."""
    ended_by: str | None = "its budget, which is used up"
    metric: str = "mean_return"


@dataclass
class FakeJob:
    plan: Plan
    path: Path
    on_exit: Callable[[], None]
    running: bool = True
    exit_code: int = 0

    def end(self, code: int) -> None:
        self.running, self.exit_code = False, code
        self.on_exit()

    def wait(self, timeout_s: float) -> bool:
        return not self.running

    def terminate(self) -> None:
        write_run(self.path, self.plan.returns, ended_by="SIGTERM", metric=self.plan.metric)
        self.end(0)

    def kill(self) -> None:
        self.end(-9)

    def exit_text(self) -> str:
        return f"exited with code {self.exit_code}"

    def last_lines(self, count: int = 10) -> list[str]:
        return ["out of memory"]


@dataclass
class FakePlace:
    """A place whose jobs do what ``plan(run_id, learning_rate)`` says, at once."""

    plan: Callable[[str, float], Plan]
    commands: list[dict[str, str]] = field(default_factory=list)

    def start(self, job: Job, threads: int, on_exit: Callable[[], None]) -> FakeJob:
        flags = dict(argument.partition("=")[::2] for argument in job.arguments[2:])
        values = dict(
            argument.removeprefix("--set=").partition("=")[::2]
            for argument in job.arguments
            if argument.startswith("--set=")
        )
        self.commands.append(flags)
        plan = self.plan(flags["--run-id"], float(values[RATE]))
        path = Path(flags["--results-dir"], flags["--run-id"])
        own = with_values(CONFIGURATION, {RATE: float(values[RATE])})
        write_run(path, plan.returns, ended_by=plan.ended_by, metric=plan.metric, configuration=own)
        fake = FakeJob(plan, path, on_exit)
        if plan.exit_code is not None:
            fake.end(plan.exit_code)
        return fake

    @property
    def runs(self) -> list[str]:
        return [flags["--run-id"] for flags in self.commands]

    def close(self) -> None:
        pass


def nine_of(value: float) -> Plan:
    return Plan([value] * 9)


def run(
    folder: Path,
    place: FakePlace,
    *,
    space: Mapping[str, Any] = SPACE,
    configuration: Mapping[str, Any] = CONFIGURATION,
    resume: bool = False,
    stop: StopSignals | None = None,
    **settings: Any,
) -> SweepResult:
    with stop or StopSignals() as asked:
        return run_sweep(
            read_space(space),
            configuration,
            SweepSettings(**{"trials": 4, "seed": 7, "pruner": "none"} | settings),
            folder,
            name="space.yaml",
            resume=resume,
            stop=asked,
            place=place,
        )


def test_score_is_that_of_the_last_tenth_of_the_steps(tmp_path: Path) -> None:
    place = FakePlace(lambda _, rate: Plan([0.0] * 8 + [rate]))
    result = run(tmp_path / "s", place)
    assert [trial.state for trial in result.trials] == ["complete"] * 4
    assert [trial.score for trial in result.trials] == [trial.values[RATE] for trial in result.trials]
    assert result.best is not None
    assert result.best.score == max(trial.values[RATE] for trial in result.trials)
    assert result.ranked[0] == result.best
    assert not result.interrupted
    assert {flags["--seed"] for flags in place.commands} == {"7"}


def test_best_file_is_the_configuration_of_the_best_trial(tmp_path: Path) -> None:
    result = run(tmp_path / "s", FakePlace(lambda _, rate: nine_of(-rate)))
    assert result.best_file is not None
    text = result.best_file.read_text()
    values = yaml.safe_load(text)
    best = min(trial.values[RATE] for trial in result.trials)
    assert values["behaviors"]["Basic"]["hyperparameters"] == {"learning_rate": best}
    assert values["env_settings"] == {"env_path": "sim:basic", "seed": 7}
    assert result.best is not None
    assert f"learning_rate: {best}  # of trial {result.best.number}" in text
    assert text.startswith(f"# The best trial of the sweep 's': trial {result.best.number}, return -0.0")


def test_seeds_are_averaged(tmp_path: Path) -> None:
    place = FakePlace(lambda run_id, rate: nine_of(float(run_id[-1])))
    result = run(tmp_path / "s", place, trials=2, seeds=3)
    assert place.runs == [f"trial-000{trial}-{seed}" for trial in (0, 1) for seed in (7, 8, 9)]
    assert [flags["--seed"] for flags in place.commands] == ["7", "8", "9"] * 2
    assert [trial.score for trial in result.trials] == [8.0, 8.0]
    assert [trial.steps for trial in result.trials] == [2700, 2700]


def test_pruned_trial_is_asked_to_end_and_stays_a_run(tmp_path: Path) -> None:
    numbers = {f"trial-{number:04d}": number for number in range(8)}

    def plan(run_id: str, rate: float) -> Plan:
        if numbers[run_id] < 5:
            return nine_of(1.0)
        return Plan([0.0] * 4, exit_code=None, ended_by=None)

    result = run(tmp_path / "s", FakePlace(plan), trials=7, pruner="median")
    assert [trial.state for trial in result.trials] == ["complete"] * 5 + ["pruned"] * 2
    assert result.trials[6].steps == 400
    assert (tmp_path / "s" / "trial-0006" / "run_logs" / "timers.json").is_file()


def test_killed_run_is_resumed_and_counted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans = iter([Plan([1.0] * 3, exit_code=-9, ended_by=None), nine_of(1.0), nine_of(2.0)])
    place = FakePlace(lambda *_: next(plans))
    with caplog.at_level(logging.WARNING):
        result = run(tmp_path / "s", place, trials=2)
    assert [trial.score for trial in result.trials] == [1.0, 2.0]
    assert place.runs == ["trial-0000", "trial-0000", "trial-0001"]
    assert ["--resume" in flags for flags in place.commands] == [False, True, False]
    assert "trial-0000 was interrupted; it is resumed." in caplog.text


def test_failed_trial_says_why_and_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans = iter([Plan([], exit_code=3, ended_by=None), nine_of(2.0), nine_of(1.0), nine_of(1.0)])
    with caplog.at_level(logging.INFO):
        result = run(tmp_path / "s", FakePlace(lambda *_: next(plans)))
    assert [trial.state for trial in result.trials] == ["failed", "complete", "complete", "complete"]
    assert "out of memory" in result.trials[0].message
    assert "Trial 0 failed" in caplog.text
    assert result.best is not None
    assert result.best.number == 1


def test_sweep_whose_trials_all_fail_fails(tmp_path: Path) -> None:
    place = FakePlace(lambda *_: Plan([], exit_code=3, ended_by=None))
    with pytest.raises(UserError, match="all 2 trials failed; the last one: "):
        run(tmp_path / "s", place, trials=2)


def test_trial_without_summaries_has_no_score(tmp_path: Path) -> None:
    plans = iter([Plan([None] * 9), nine_of(1.0)])
    result = run(tmp_path / "s", FakePlace(lambda *_: next(plans)), trials=2)
    assert [trial.state for trial in result.trials] == ["failed", "complete"]
    assert "no value of mean_group_return or mean_return" in result.trials[0].message


def test_no_trial_begins_after_the_steps_are_used(tmp_path: Path) -> None:
    result = run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)), total_steps=1000)
    assert [trial.steps for trial in result.trials] == [900, 900]
    result = run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)), total_steps=2000, resume=True)
    assert len(result.trials) == 3


def test_wall_clock_saves_running_trials_for_a_resumed_sweep(tmp_path: Path) -> None:
    forever = Plan([1.0] * 2, exit_code=None, ended_by=None)
    result = run(tmp_path / "s", FakePlace(lambda *_: forever), jobs=2, wall_clock=0.01)
    assert result.interrupted
    assert {trial.state for trial in result.trials} <= {"running"}
    place = FakePlace(lambda *_: nine_of(1.0))
    result = run(tmp_path / "s", place, resume=True, trials=3)
    assert [trial.state for trial in result.trials] == ["complete"] * 3


def test_stop_request_leaves_trials_to_be_resumed(tmp_path: Path) -> None:
    stop = StopSignals()

    def plan(run_id: str, rate: float) -> Plan:
        if run_id == "trial-0001":
            stop.request()
            return Plan([1.0] * 2, exit_code=None, ended_by=None)
        return nine_of(1.0)

    result = run(tmp_path / "s", FakePlace(plan), stop=stop)
    assert result.interrupted
    assert [trial.state for trial in result.trials] == ["complete", "running"]
    drawn = [trial.values for trial in result.trials]
    place = FakePlace(lambda *_: nine_of(1.0))
    result = run(tmp_path / "s", place, resume=True)
    assert [trial.state for trial in result.trials] == ["complete"] * 4
    assert [trial.values for trial in result.trials][:2] == drawn
    assert place.runs == ["trial-0001", "trial-0002", "trial-0003"]
    assert "--resume" in place.commands[0]


def test_run_of_a_killed_sweep_is_resumed_once_it_is_saved(tmp_path: Path) -> None:
    stop = StopSignals()

    def plan(run_id: str, rate: float) -> Plan:
        stop.request()
        return Plan([1.0], exit_code=None, ended_by=None)

    run(tmp_path / "s", FakePlace(plan), stop=stop)
    lock = FileLock(tmp_path / "s" / "trial-0000" / ".lock")
    saved = threading.Event()

    def end_save() -> None:
        saved.set()
        lock.release()

    timer = threading.Timer(0.3, end_save)
    timer.start()
    starts_after_save: list[bool] = []

    def plan_of_resumed(run_id: str, rate: float) -> Plan:
        starts_after_save.append(saved.is_set())
        return nine_of(1.0)

    result = run(tmp_path / "s", FakePlace(plan_of_resumed), resume=True, trials=1)
    timer.join()
    assert starts_after_save == [True]
    assert result.trials[0].score == 1.0


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"seeds": 2}, "seeds"),
        ({"seed": 8}, "seed"),
        ({"objective": "mean_length"}, "objective"),
        ({"space": {RATE: {"low": 0.001, "high": 0.2}}}, "space"),
    ],
)
def test_resumed_sweep_must_score_as_before(tmp_path: Path, settings: dict[str, Any], changed: str) -> None:
    run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)), trials=1)
    with pytest.raises(UserError, match=f"the sweep began with another {changed}"):
        run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)), resume=True, **settings)


def half(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[: text.count("\n") // 2])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: None, r"journal\.log' has 0 trials, but 'trial-000\d' is there"),
        (lambda text: "", r"journal\.log' has 0 trials, but"),
        (half, r"journal\.log' has 1 trials, but 'trial-0001' is there"),
        (lambda text: "no JSON\n" + text, r"journal\.log:1: expected a JSON object"),
        (lambda text: text + "5\n", r"journal\.log:\d+: expected a JSON object"),
        (lambda text: "\0\n" + text, r"journal\.log:1: expected a JSON object"),
        (lambda text: "\udcff\n" + text, r"journal\.log:1: expected a JSON object"),
        (lambda text: text + "{}\n", r"journal\.log' is damaged\. Optuna cannot read it: KeyError"),
        (lambda text: text + '{"op_code": 99, "worker_id": "x"}\n', r"journal\.log' is damaged\. Optuna"),
        (lambda text: text + '{"op_code": [], "worker_id": 5}\n', r"journal\.log' is damaged\. Optuna"),
    ],
)
def test_damaged_journal_is_refused_by_name(tmp_path: Path, damage: Any, said: str) -> None:
    run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)), trials=2)
    journal = tmp_path / "s" / "journal.log"
    text = damage(journal.read_text())
    if text is None:
        journal.unlink()
    else:
        journal.write_bytes(text.encode(errors="surrogateescape"))
    place = FakePlace(lambda *_: nine_of(1.0))
    with pytest.raises(UserError, match=said):
        run(tmp_path / "s", place, trials=3, resume=True)
    assert not place.commands


def test_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)), trials=1)
    with pytest.raises(UserError, match=r"is taken\. Use --resume to continue the sweep there"):
        run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)))


def test_sweep_of_another_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    lock = FileLock(tmp_path / "s" / ".lock")
    try:
        with pytest.raises(UserError, match="is in use: process"):
            run(tmp_path / "s", FakePlace(lambda *_: nine_of(1.0)))
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_settings": {}}, "env_settings.env_path: each trial needs simulators of its own"),
        ({"metrics_port": 9000}, "metrics_port: expected none, as 2 trials at a time cannot share a port"),
    ],
)
def test_configuration_that_trials_cannot_share(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run(
            tmp_path / "s",
            FakePlace(lambda *_: nine_of(1.0)),
            configuration=CONFIGURATION | changes,
            jobs=2,
        )
    assert not (tmp_path / "s").exists()
