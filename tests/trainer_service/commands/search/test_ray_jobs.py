"""Jobs on a Ray of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer_service.commands.common.jobs import Job, JobPool

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def place(processes: None) -> Iterator[Any]:
    from trainer_service.commands.search.ray_jobs import ray_place

    with ray_place("local", 2, insecure=False) as place:
        yield place


def end_of(pool: JobPool) -> Any:
    ends: list[Any] = []
    while not ends:
        ends = pool.wait(1.0)
    return ends[0]


@pytest.mark.thorough
def test_jobs_end_as_on_this_machine(place: Any, workplace: Path) -> None:
    with JobPool(2, place) as pool:
        pool.start(Job("good", ("--version",), Path("logs/good.log")))
        pool.start(Job("bad", ("check", "nothing.yaml"), Path("logs/bad.log")))
        ends = {end.job.name: end for end in (end_of(pool), end_of(pool))}
    assert ends["good"].exit_code == 0
    assert (workplace / "logs" / "good.log").read_text().startswith("trainer-service ")
    assert ends["bad"].exit_code == 2
    assert "configuration file not found" in ends["bad"].message


@pytest.mark.thorough
def test_job_that_is_asked_to_end_saves(place: Any, configure: Callable[..., Path], workplace: Path) -> None:
    configure("Basic", max_steps=10_000_000)
    log = workplace / "job.log"
    arguments = ("learn", "config.yaml", "--env=sim:basic", "--run-id=w")
    with JobPool(2, place) as pool:
        pool.start(Job("w", arguments, log))
        while not (workplace / "results" / "w" / "metrics.jsonl").exists():
            assert not pool.wait(0.1), log.read_text()
        pool.stop("w")
        end = end_of(pool)
    assert (end.exit_code, end.stopped) == (0, True)
    assert (workplace / "results" / "w" / "Basic" / "checkpoint.safetensors").is_file()
