"""A driver of a local Ray with one worker, which counts the signals that it gets and goes on."""

from __future__ import annotations

import json
import os
import signal
import sys

import ray

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import ray_cluster


@ray.remote
class Worker:
    """A worker that can tell it is alive."""

    def pid(self) -> int:
        return os.getpid()


def main() -> None:
    """Answers each line on standard input with a line: the signals so far, and the worker's process."""
    import psutil

    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: received.append(number))
    with ray_cluster(DistributedSettings(num_workers=1), 1):
        worker = Worker.remote()
        ray.get(worker.pid.remote())
        print(json.dumps([process.pid for process in psutil.Process().children(recursive=True)]), flush=True)
        for _ in sys.stdin:
            print(json.dumps([sorted(received), ray.get(worker.pid.remote(), timeout=30)]), flush=True)


if __name__ == "__main__":
    main()
