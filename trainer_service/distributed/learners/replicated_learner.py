"""Learners whose updates several ranks compute together. Rank 0 collects, and the other ranks follow it.

All ranks hold the same learner, and change it in the same order. They record what rank 0 recorded since the last
update. Then, in the update, each rank computes its part of every minibatch (``networks.shard``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners.group import LearnerGroup
from trainer_service.errors import LearnerRankLost
from trainer_service.learning.algorithms import make_learner
from trainer_service.learning.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.learning.algorithms.common.on_policy.learner import from_tensors, to_tensors
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.runs.checkpoint import Checkpoint, parse_checkpoint, plain_checkpoint
from unity_bridge.specs import BehaviorSpec

_MOST_CHUNKS = 512
"""Records that rank 0 keeps before it sends them."""


class ReplicatedLearner(Learner):
    """Rank 0's learner, with a copy on every other rank."""

    def __init__(
        self,
        learner: Learner,
        group: LearnerGroup,
        number: int,
        explain: Callable[[LearnerRankLost], LearnerRankLost] = lambda error: error,
    ) -> None:
        """number: of the learner in the run, from 0. explain: adds details about a lost rank to its error."""
        self._learner = learner
        self._explain = explain
        self._group = group
        self._number = number
        self._recorded: list[Trajectories] = []
        """Records of rank 0 that the other ranks do not have yet."""
        self.horizon = learner.horizon
        self.actor = learner.actor

    def prepare(self, step: int) -> None:
        """Reads its other inputs on every rank. Raises UserError."""
        self._learner.prepare(step)
        self._send("prepare", step=step)

    def record(self, trajectories: Trajectories) -> None:
        """Records finished experience. The other ranks get it at the next update at the latest."""
        self._learner.record(trajectories)
        self._recorded.append(trajectories)
        if len(self._recorded) >= _MOST_CHUNKS:
            self._pass_on()

    def ready(self) -> bool:
        """Whether there is enough experience for an update."""
        return self._learner.ready()

    def collected(self) -> tuple[int, int] | None:
        """Steps collected for the next update, and the steps that it needs."""
        return self._learner.collected()

    def update(self, step: int) -> Metrics:
        """Makes an update together with the other ranks.

        Raises:
            LearnerRankLost: A rank ended. The learner has its state from before the update.
        """
        before = _copy(self._learner.state_dict())
        try:
            self._learner.schedule_lead = self.schedule_lead
            self._send("update", step=step, schedule_lead=self.schedule_lead)
            return self._learner.update(step)
        except LearnerRankLost as error:
            self._learner.load_state_dict(before)
            raise self._explain(error) from None
        except BaseException:
            self._group.broken = True  # the other ranks are still in the middle of the update
            raise

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a run, independent of ranks."""
        return self._learner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result on every rank; see Learner."""
        self._learner.load_state_dict(state)
        self._recorded.clear()
        self._send("load_state_dict", state=dict(state))

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """The replay buffer; see Learner."""
        return self._learner.replay_state()

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores a replay buffer on every rank; see Learner."""
        arrays = dict(state.items())
        self._learner.load_replay_state(arrays)
        tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
        self._send("load_replay_state", state=tensors)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads networks and normalizer on every rank; see Learner."""
        self._learner.load_weights(state)
        self._send("load_weights", state=dict(state))

    def _pass_on(self) -> None:
        if self._recorded:
            chunks = [to_tensors(trajectories) for trajectories in self._recorded]
            self._recorded.clear()
            self._send("record", chunks=chunks)

    def _send(self, what: str, **content: Any) -> None:
        """Sends a call to the other ranks, after all records that came before it."""
        if what != "record":
            self._pass_on()
        self._group.send({"what": what, "learner": self._number, **content})


def introduce_learner(
    group: LearnerGroup, name: str, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute
) -> None:
    """Tells the other ranks to make the learner that rank 0 made."""
    made_with = {"seed": compute.seed, "decoupled": compute.decoupled, "precision": compute.precision}
    made_from = Checkpoint(name, 0, spec, settings, made_with)
    group.send({"what": "make", "checkpoint": plain_checkpoint(made_from)})


def serve(group: LearnerGroup, device: torch.device) -> list[Learner]:
    """Executes the calls of rank 0 until rank 0 ends the run. Returns this rank's learners.

    Raises:
        LearnerRankLost: Rank 0 or another rank ended during the run.
    """
    learners: list[Learner] = []
    while (message := group.receive())["what"] != "end":
        if message["what"] == "make":
            learners.append(_made(message, group, device))
        elif message["what"] == "threads":
            torch.set_num_threads(message["threads"])
        else:
            _DOINGS[message["what"]](learners[message["learner"]], message)
    return learners


def _made(message: Mapping[str, Any], group: LearnerGroup, device: torch.device) -> Learner:
    checkpoint = parse_checkpoint(message["checkpoint"], Path("rank 0"))
    compute = Compute(device, shard=group, **checkpoint.algorithm)
    return make_learner(checkpoint.spec, checkpoint.settings, compute)


def _record(learner: Learner, message: Mapping[str, Any]) -> None:
    for chunk in message["chunks"]:
        learner.record(from_tensors(chunk))


def _update(learner: Learner, message: Mapping[str, Any]) -> None:
    learner.schedule_lead = message["schedule_lead"]
    learner.update(message["step"])


def _load_replay_state(learner: Learner, message: Mapping[str, Any]) -> None:
    learner.load_replay_state({name: tensor.numpy() for name, tensor in message["state"].items()})


_DOINGS: Mapping[str, Callable[[Learner, Mapping[str, Any]], object]] = {
    "prepare": lambda learner, message: learner.prepare(message["step"]),
    "record": _record,
    "update": _update,
    "load_state_dict": lambda learner, message: learner.load_state_dict(message["state"]),
    "load_weights": lambda learner, message: learner.load_weights(message["state"]),
    "load_replay_state": _load_replay_state,
}
"""The calls on a learner that rank 0 may send to other ranks."""


def _copy(state: Any, key: str = "") -> Any:
    """Returns a copy of a state that later updates do not change. Collected steps are not copied: they never change."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, Mapping):
        return {name: part if name == "collected" else _copy(part) for name, part in state.items()}
    if isinstance(state, list | tuple):
        return [_copy(part) for part in state]
    return state
