"""Rollout workers in processes of real Ray: whole runs as users start them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_files import checkpoint, metrics

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import ray_cluster

pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster(processes: None) -> Iterator[None]:
    """A Ray that was started for this module."""
    with ray_cluster(DistributedSettings(num_workers=2), 2):
        yield


@pytest.fixture
def learn(mlagents_style) -> Callable[..., Any]:
    return lambda *flags: mlagents_style("learn", "config.yaml", "--seed=1", "--num-workers=2", *flags)


def test_sac_learns_from_a_replay_buffer(learn, configure) -> None:
    hyper = {"batch_size": 32, "buffer_size": 1000, "buffer_init_steps": 100}
    configure("Pendulum-v1", trainer_type="sac", hyperparameters=hyper, max_steps=201)
    said = learn("--env=gym:Pendulum-v1")
    assert said.code == 0, said.out + said.err
    assert metrics("ppo")[-1]["q1_loss"] > 0
    assert checkpoint("ppo", "Pendulum-v1")["step"] == 201


@pytest.mark.thorough
def test_a_program_that_does_not_start_names_worker_and_machine(learn, configure, workplace: Path) -> None:
    program = workplace / "broken"
    program.write_text("#!/bin/sh\necho no licence >&2\nexit 3\n")
    program.chmod(0o755)
    configure("Basic")
    said = learn(f"--env={program}", "--max-lifetime-restarts=0")
    assert said.code != 0
    assert re.search(r"worker \d on .*: simulator \d .*exited with code 3(.|\n)*no licence", said.err)
