"""Populations: members that take over each other's runs."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer_service.analysis.curves import Curve
from trainer_service.analysis.run_record import RunRecord
from trainer_service.cli import main
from trainer_service.errors import ConfigError, UserError
from trainer_service.experiments.jobs import Job
from trainer_service.experiments.matches import ratings
from trainer_service.experiments.objective import Objective
from trainer_service.experiments.population import Plan, Population, run_population, segment_score
from trainer_service.training.stop_signals import StopSignals

RATE = "behaviors.Basic.hyperparameters.learning_rate"
EPOCHS = "behaviors.Basic.hyperparameters.num_epoch"
SPACE = {RATE: {"low": 1e-4, "high": 1e-2, "log": True}, EPOCHS: {"low": 1, "high": 8, "int": True}}
BASIC = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 128},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "max_steps": 900,
    "time_horizon": 16,
    "summary_freq": 100,
}


def plan(members: int = 3, interval: int = 450, space: dict[str, Any] = SPACE, **changes: Any) -> Plan:
    behaviors = {"Basic": {**BASIC, **changes.pop("behavior", {})}}
    configuration = {"behaviors": behaviors, "env_settings": {"env_path": "sim:basic"}}
    given: dict[str, Any] = {"seed": 1, "objective": None, "games": 4, "configuration": configuration}
    return Plan(members=members, interval=interval, space=space, **{**given, **changes})


class Ended:
    """A job that has ended."""

    running = False

    def __init__(self, exit_code: int, log: Path) -> None:
        self.exit_code = exit_code
        self._log = log

    def wait(self, timeout_s: float) -> bool:
        return True

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def exit_text(self) -> str:
        return f"exit code {self.exit_code}"

    def last_lines(self, count: int = 10) -> list[str]:
        return self._log.read_text().splitlines()[-count:]


class ThisProcess:
    """Runs jobs in this process, where torch is loaded already."""

    def __init__(self, before: Callable[[Job], int | None] = lambda job: None) -> None:
        """before: called before a job, which it ends with an exit code instead of running it."""
        self._before = before
        self.jobs: list[Job] = []

    def start(self, job: Job, threads: int, on_exit: Callable[[], None]) -> Ended:
        self.jobs.append(job)
        with job.log.open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            code = self._before(job)
            code = main(list(job.arguments)) if code is None else code
        on_exit()
        return Ended(code, job.log)

    def close(self) -> None:
        pass


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    with StopSignals() as signals:
        yield signals


def rows(folder: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, without the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    clock = {"wall_s", "steps_per_s"}
    return [{key: value for key, value in json.loads(line).items() if key not in clock} for line in lines]


def assert_replayed(population: Path, again: Path) -> None:
    """Asserts that learning by the schedule gives the best member's numbers, bit for bit."""
    arguments = [
        "learn",
        str(population / "configuration.yaml"),
        f"--schedule={population / 'schedule.yaml'}",
    ]
    assert main([*arguments, f"--run-id={again.name}", f"--results-dir={again.parent}"]) == 0
    assert rows(again) == rows(population / "best")
    state = "Basic/checkpoint.safetensors"
    assert (again / state).read_bytes() == (population / "best" / state).read_bytes()


def test_a_population_finds_a_schedule_that_learn_replays(workplace: Path, stop: StopSignals) -> None:
    place = ThisProcess()
    population = run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop, place=place)
    assert population.complete
    first, second = population.generations
    scores = [member.score for member in first]
    assert None not in scores
    worst, best = scores.index(min(scores)), scores.index(max(scores))
    assert [member.source for member in second] == [best if at == worst else at for at in range(3)]
    assert second[worst].values != first[worst].values
    assert [member.step for member in second] == [900] * 3
    assert_replayed(Path("p"), Path("again"))


def test_a_member_that_a_signal_ended_is_trained_again_from_the_last_generation(
    workplace: Path, stop: StopSignals
) -> None:
    killed: list[str] = []

    def kill_once(job: Job) -> int | None:
        if "generation-2" in str(job.log) and job.name == "member-2" and not killed:
            killed.append(job.name)
            main([*job.arguments, "--set", "stop.steps=600"])  # it was in the middle of its segment
            return -signal.SIGKILL
        return None

    place = ThisProcess(kill_once)
    population = run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop, place=place)
    assert killed
    assert len(place.jobs) == 7
    undisturbed = run_population(plan(), Path("q"), resume=False, jobs=1, stop=stop, place=ThisProcess())
    assert population.generations == undisturbed.generations
    assert rows(Path("p/best")) == rows(Path("q/best"))


def test_a_stopped_population_goes_on_where_it_was(workplace: Path, stop: StopSignals) -> None:
    def stop_in_second_generation(job: Job) -> int | None:
        if "generation-2" in str(job.log) and job.name == "member-2":
            stop.request()
        return None

    place = ThisProcess(stop_in_second_generation)
    assert not run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop, place=place).complete
    assert len(place.jobs) == 5
    with StopSignals() as fresh:
        place = ThisProcess()
        resumed = run_population(plan(seed=-1), Path("p"), resume=True, jobs=1, stop=fresh, place=place)
    assert resumed.complete
    assert [job.name for job in place.jobs] == ["member-3"]
    assert_replayed(Path("p"), Path("again"))


def test_a_failed_member_takes_over_another_run(workplace: Path, stop: StopSignals) -> None:
    def fail(job: Job) -> int | None:
        return 2 if "generation-1" in str(job.log) and job.name == "member-1" else None

    population = run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop, place=ThisProcess(fail))
    first, second = population.generations
    assert first[0].score is None
    assert second[0].source in (1, 2)
    assert second[0].score is not None


def test_a_population_whose_members_all_fail_ends_and_can_be_resumed(
    workplace: Path, stop: StopSignals
) -> None:
    with pytest.raises(UserError, match=r"all members failed\. member-3: exit code 2"):
        run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop, place=ThisProcess(lambda job: 2))
    population = run_population(plan(), Path("p"), resume=True, jobs=1, stop=stop, place=ThisProcess())
    assert population.complete


def test_members_under_self_play_are_rated_by_games(workplace: Path, stop: StopSignals) -> None:
    behavior = "behaviors.Duel.hyperparameters.learning_rate"
    settings = {
        **BASIC,
        "self_play": {"save_steps": 200, "team_change": 400, "swap_steps": 100, "window": 2},
        "max_steps": 800,
    }
    configuration = {"behaviors": {"Duel": settings}, "env_settings": {"env_path": "sim:duel"}}
    of = plan(interval=400, space={behavior: {"low": 1e-4, "high": 1e-2}}, configuration=configuration)
    place = ThisProcess()
    population = run_population(of, Path("p"), resume=False, jobs=1, stop=stop, place=place)
    assert population.complete
    assert [job.name for job in place.jobs].count("games") == 2
    found = [member.score for member in population.generations[-1]]
    output = Path("p/generation-2/games.log").read_text()
    assert found == [ratings(output)[f"member-{number}"] for number in (1, 2, 3)]


def test_ratings_are_those_of_all_games() -> None:
    matches = [
        {"player": "a", "opponent": "b", "games": 10, "won": 6, "drawn": 2, "lost": 2},
        {"player": "a", "opponent": "c", "games": 10, "won": 10, "drawn": 0, "lost": 0},
        {"player": "b", "opponent": "c", "games": 10, "won": 5, "drawn": 0, "lost": 5},
    ]
    found = ratings(f"a line\n{json.dumps({'env': 'x', 'matches': matches})}\n")
    # a: 17 of 20, b: 8 of 20, c: 5 of 20, each with half a game more of 21
    assert found["a"] == pytest.approx(400 * 0.698970, abs=1e-3)  # log10(17.5 / 3.5)
    assert found["b"] == pytest.approx(-66.996, abs=1e-2)  # 400 log10(8.5 / 12.5)
    assert found["c"] == pytest.approx(-179.988, abs=1e-2)  # 400 log10(5.5 / 15.5)
    with pytest.raises(UserError, match="no result of the games"):
        ratings("nothing")


def test_a_score_is_of_the_later_half_of_a_generation() -> None:
    def curve(steps: list[int], values: list[float]) -> Curve:
        return Curve(steps=np.array(steps), seconds=np.zeros(len(steps)), values=np.array(values, np.float64))

    curves = {
        "A": {"mean_return": curve([100, 200, 300, 400], [90.0, 1.0, 3.0, 5.0])},
        "B": {"mean_return": curve([100, 300], [70.0, 2.0]), "entropy": curve([300], [9.0])},
        "C": {"mean_return": curve([100], [50.0])},
    }
    run = RunRecord(Path("a"), "ours", None, curves)
    objective = Objective("return", ("mean_group_return", "mean_return"), None, interval=100, reports=4)
    assert segment_score(objective, run, after=100) == 3.0  # A: 4, B: 2
    assert segment_score(objective, run, after=400) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 1}, "--members: expected at least 2, got 1"),
        ({"interval": 900}, "--interval: expected fewer steps than max_steps, 900, got 900"),
        ({"interval": 50}, "--interval: expected at least the 100 steps between two scores of a run, got 50"),
        (
            {"space": {"behaviors.Basic.network_settings.hidden_units": {"choices": [8, 16]}}},
            "space: network_settings.hidden_units was 8, now 16: members take over each other's checkpoints",
        ),
        (
            {"space": {"behaviors.Basic.max_steps": {"choices": [900, 1000]}}},
            "space: max_steps was 900, now 1000: members take over each other's checkpoints",
        ),
        ({"space": {"behaviors.Basic.hyperparameters.rate": {"low": 0, "high": 1}}}, "unknown key"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan(**changes).require_valid()
    assert message in str(refusal.value)


def test_the_space_may_name_a_behavior_that_default_settings_configure() -> None:
    settings = {"max_steps": 900, "summary_freq": 100}
    rates = {"behaviors.Basic.hyperparameters.learning_rate": {"low": 1e-4, "high": 1e-2}}
    plan(configuration={"default_settings": settings}, space=rates).require_valid()
    units = {"behaviors.Basic.network_settings.hidden_units": {"choices": [8, 128]}}
    with pytest.raises(ConfigError, match="hidden_units was 128, now 8"):
        plan(configuration={"default_settings": settings}, space=units).require_valid()


def test_a_population_is_resumed_with_its_own_plan_only(workplace: Path, stop: StopSignals) -> None:
    with pytest.raises(UserError, match="no population in 'p'"):
        run_population(plan(), Path("p"), resume=True, jobs=1, stop=stop)
    stop.request()
    run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop)
    with pytest.raises(UserError, match="'p' is taken"):
        run_population(plan(), Path("p"), resume=False, jobs=1, stop=stop)
    with pytest.raises(UserError, match="the population began with another interval and games"):
        run_population(plan(interval=300, games=5), Path("p"), resume=True, jobs=1, stop=stop)
    Path("p/population.json").write_text('{"plan": {}}')
    with pytest.raises(UserError, match=r"cannot read 'p.population\.json'"):
        Population.read(Path("p"))


def test_simulators_that_attach_are_refused(workplace: Path, stop: StopSignals) -> None:
    of = plan(configuration={"behaviors": {"Basic": BASIC}})
    with pytest.raises(UserError, match="each member needs simulators of its own"):
        run_population(of, Path("p"), resume=False, jobs=1, stop=stop)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform == "win32", reason="kills a process as POSIX does")
@pytest.mark.timeout(600)
def test_a_killed_population_is_resumed_and_its_schedule_replayed(start, mlagents_style, configure) -> None:
    configure("Basic", **{**BASIC, "max_steps": 3000, "summary_freq": 500, "checkpoint_interval": 500})
    Path("space.yaml").write_text(json.dumps(SPACE))
    population = (
        "population", "config.yaml", "--space=space.yaml", "--env=sim:basic", "--members=2", "--interval=1500",
        "--jobs=2", "--seed=4", "--run-id=p",
    )  # fmt: skip
    running = start(*population)
    wait_for(Path("results/p/generation-2/member-1/Basic/Basic-2000.safetensors"))
    running.signal(signal.SIGKILL)
    running.end()
    resumed = mlagents_style(*population, "--resume")
    assert resumed.code == 0, resumed.err
    assert f"The best policy is in {Path('results/p/best')}" in resumed.out
    state = json.loads(Path("results/p/population.json").read_text())
    steps = [[member["step"] for member in generation] for generation in state["generations"]]
    assert steps == [[1500] * 2, [3000] * 2]
    assert_replayed(Path("results/p"), Path("results/again"))
    said = mlagents_style("evaluate", "best", "--results-dir=results/p", "--episodes=4", "--json")
    assert said.code == 0, said.err
