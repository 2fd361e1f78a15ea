"""A driver of a local Ray with one worker that records signals and continues."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import ray

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import ray_cluster

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DELIVERY_S = 60.0
"""The time for all signals to arrive: the kernel may hand one to any thread, which a busy machine runs late."""


@ray.remote
class Worker:
    """A worker that can tell it is alive."""

    def pid(self) -> int:
        return os.getpid()


def main() -> None:
    """Answers each line on standard input with a line: the signals so far, and the worker's process."""
    import psutil

    received: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: received.append(number))
    with ray_cluster(DistributedSettings(num_workers=1), 1):
        worker = Worker.remote()
        ray.get(worker.pid.remote())
        print(json.dumps([process.pid for process in psutil.Process().children(recursive=True)]), flush=True)
        for _ in sys.stdin:
            deadline = time.monotonic() + DELIVERY_S
            while len(received) < len(SIGNALS) and time.monotonic() < deadline:
                time.sleep(0.01)
            print(json.dumps([sorted(received), ray.get(worker.pid.remote(), timeout=30)]), flush=True)


if __name__ == "__main__":
    main()
