"""Ray for tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def shared_ray(processes: None) -> Iterator[None]:
    """A local Ray that every run of the module uses, with room for three workers: starting it takes seconds."""
    pytest.importorskip("ray")
    from trainer_service.config import DistributedSettings
    from trainer_service.distributed.ray_cluster import ray_cluster

    with ray_cluster(DistributedSettings(num_workers=3), 3):
        yield
