"""Settings of a run that is spread over processes: rollout workers and learner ranks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import model_validator

from trainer_service.config.section import Argument, Section, section_error
from trainer_service.config.values import Count, CountOrUnlimited, Flag, NonNegative, PositiveCount, Text

Collection = Literal["sync", "async"]


class DistributedSettings(Section):
    """Rollout workers, which are Ray actors with simulators of their own, and learner ranks, which share every
    minibatch among them. An addition to ML-Agents; see docs/scaling.md."""

    num_workers: Annotated[Count, Argument("N")] = 0
    """Rollout workers; ``num_envs`` simulators run in each. 0 collects in the trainer's own process, without Ray."""

    ray_address: Annotated[Text | None, Argument("ADDRESS")] = None
    """The Ray cluster that workers run on: ``auto`` (one that this machine belongs to), ``HOST:PORT`` or
    ``ray://HOST:PORT``; null starts Ray on this machine, for this run."""

    insecure_ray: Annotated[Flag, Argument()] = False
    """Whether a cluster may be used that does not require a token: anyone who reaches it can run code on it."""

    cpus_per_worker: NonNegative = 1.0
    """Cores that Ray sets aside for each worker and its simulators, where it places them."""

    collection: Collection = "sync"
    """``sync`` collects every rollout with the newest policy while learning waits; ``async`` collects while the
    learner learns, with a policy that may be older. PPO, MAPPO, HAPPO and POCA weigh what it did;
    COMA cannot."""

    fragment_steps: PositiveCount | None = None
    """Agent steps that a worker sends at once; null takes its share of the steps of the next update, with ``async``
    a quarter of that."""

    max_policy_lag: Count = 2
    """Updates that a policy may be old when its steps come; older ones are dropped. With ``async`` only."""

    min_workers: PositiveCount = 1
    """Workers without which the run is saved and ends, when they have been missing for ``timeout_wait`` seconds."""

    max_worker_restarts: CountOrUnlimited = 10
    """How often one worker may be restarted; −1 means without limit."""

    num_learners: Annotated[PositiveCount, Argument("K")] = 1
    """Learner ranks, each a process: on GPUs one for each. Their gradients are averaged at each step."""

    @model_validator(mode="after")
    def _enough_workers_can_be_there(self) -> Self:
        if self.num_workers and self.min_workers > self.num_workers:
            most = f"{self.num_workers} (num_workers)"
            raise section_error(("min_workers",), f"expected at most {most}, got {self.min_workers}")
        return self
