"""Jobs on a Ray cluster, whose nodes share the folder of results."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from trainer_service.commands.common.jobs import Job, LocalProcesses
from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import ray_cluster
from trainer_service.errors import UserError
from unity_bridge.programs.cores import cores_of_each

_WAIT_S = 1.0
_NOT_STARTED = 1
_LOST = "it was lost with its node"


@contextmanager
def ray_place(address: str, jobs: int, *, insecure: bool) -> Iterator[RayActors]:
    """Connects to a cluster and runs jobs there for as long as the context lasts.

    Args:
        address: auto, HOST:PORT or ray://HOST:PORT; ``local`` starts Ray on this machine.
        jobs: at a time.
        insecure: whether a cluster may be used that needs no token.

    Raises:
        UserError: Ray is not installed, or the cluster cannot be used.
    """
    settings = DistributedSettings(
        ray_address=address, insecure_ray=insecure, cpus_per_worker=float(cores_of_each(jobs))
    )
    with ray_cluster(settings, jobs):
        yield RayActors()


class RayActors:
    """A place where each job is the child of an actor, on the node that Ray chooses for it."""

    def start(self, job: Job, threads: int, on_exit: Callable[[], None]) -> RayJob:
        """Starts a job; see ``Place.start``."""
        return RayJob(job, threads, on_exit)

    def close(self) -> None:
        """Does nothing: the cluster is closed by its context."""


class RayJob:
    """A job of an actor, as ``RunningJob`` describes it."""

    def __init__(self, job: Job, threads: int, on_exit: Callable[[], None]) -> None:
        import ray

        actor = ray.remote(_Process)
        # One thread waits for the process while the other one passes a request on.
        options = actor.options(num_cpus=threads, max_concurrency=2, max_restarts=0)
        self._actor = options.remote(job, threads, os.getcwd())
        self._on_exit = on_exit
        self._end: tuple[int, str, list[str]] | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name=f"job {job.name}", daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether its exit has not been noticed yet."""
        return not self._ended.is_set()

    @property
    def exit_code(self) -> int:
        """The exit code, negative for the signal that killed it. Only for a job that has ended."""
        assert self._end is not None
        return self._end[0]

    def wait(self, timeout_s: float) -> bool:
        """Waits for the exit; False if the time was not enough."""
        return self._ended.wait(max(timeout_s, 0.0))

    def terminate(self) -> None:
        """Asks the job to save and end, as SIGTERM does."""
        self._actor.terminate.remote()

    def kill(self) -> None:
        """Ends the job at once."""
        self._actor.kill.remote()

    def exit_text(self) -> str:
        """Returns how it ended, in words. Only for a job that has."""
        assert self._end is not None
        return self._end[1]

    def last_lines(self, count: int = 10) -> list[str]:
        """The last non-empty lines that it printed."""
        return [] if self._end is None else self._end[2][-count:]

    def _watch(self) -> None:
        import ray

        end = None
        while end is None:
            try:
                end = ray.get(self._actor.wait.remote(_WAIT_S))
            except (ray.exceptions.RayError, UserError, OSError) as error:
                end = (_NOT_STARTED, _LOST, [str(error)])
        self._end = end
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)
        self._ended.set()
        self._on_exit()


class _Process:
    """The actor of a job."""

    def __init__(self, job: Job, threads: int, folder: str) -> None:
        """Starts the job in a folder that the nodes share."""
        os.chdir(folder)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self._place = LocalProcesses()
        self._process = self._place.start(job, threads, lambda: None)

    def wait(self, timeout_s: float) -> tuple[int, str, list[str]] | None:
        """Waits for the exit. Returns the exit code, how it ended and the last lines; None in time without an exit."""
        if not self._process.wait(timeout_s):
            return None
        return self._process.exit_code, self._process.exit_text(), self._process.last_lines()

    def terminate(self) -> None:
        """Asks the process to save and end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()
