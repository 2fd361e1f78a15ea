"""Rollout workers as objects of this process, on simulators without processes: whole runs in milliseconds."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trainer_service.config import DistributedSettings, RunOptions, parse_run_options
from trainer_service.distributed.records import CollectionQuota, SampleRequest, SampleResult
from trainer_service.distributed.rollout_workers import RolloutWorkers, WorkerLost
from trainer_service.distributed.worker import RolloutWorker
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.observation_selection import with_group_size
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.registry import Behaviors
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.behaviors.self_play import TurnScheduler
from trainer_service.running.callbacks import Callback, CallbackList, RunView
from trainer_service.running.collection.heterogeneous_groups import with_agent_counts
from trainer_service.running.collection.records import SampleBatch
from trainer_service.running.collection.router import EnvSteps
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import Checkpoint
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.learn import learn
from trainer_service.running.training.opponent_pools import fixed_opponents
from trainer_service.running.training.progress_log import ProgressLog
from trainer_service.running.training.recorder import Outputs, Recorder
from trainer_service.running.training.run import Run
from unity_bridge.server.bridge import BridgeSettings, SimulatorInfo, Tick
from unity_bridge.side_channels import SideChannelRecord, pack_records, unpack_records
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Scene, Steps, copies_of
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

OpenScene = Callable[[int, Academy], Scene]
"""Makes the scene of simulator number n of the run."""

_MOST_TURNS = 2000
SMALL_PPO: Mapping[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 16, "buffer_size": 64, "learning_rate_schedule": "constant"},
    "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
    "max_steps": 200,
    "time_horizon": 8,
    "summary_freq": 100,
}
"""Settings of a behavior that makes three updates."""

CPU = torch.device("cpu")
_LOGGERS = ("trainer_service", "unity_bridge")


class SceneBridge:
    """A bridge whose simulators are scenes of this process."""

    def __init__(self, settings: BridgeSettings, first: int, scenes: OpenScene) -> None:
        """first: number of the first simulator in the whole run."""
        self._settings = settings
        self._first = first
        self._open = scenes
        self._hosted: list[_Hosted] = []

    def launch(self, command: object, count: int) -> None:
        for number in range(count):
            academy = Academy()
            scene = self._open(self._first + number, academy)
            self._hosted.append(_Hosted(number, scene, academy, self._settings.seed + number))

    @property
    def simulators(self) -> dict[int, SimulatorInfo]:
        return {each.number: SimulatorInfo("3.0.1", "1.5.0", frozenset(), True) for each in self._hosted}

    def receive(self, timeout_s: float) -> list[Tick]:
        return [each.tick(self._settings.greeting(each.number)) for each in self._hosted if not each.is_owed]

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        self._hosted[simulator].step(actions)

    def reset(self, simulator: int, records: Iterable[SideChannelRecord] = ()) -> None:
        self.send(records, simulator)
        self._hosted[simulator].reset()

    def send(self, records: Iterable[SideChannelRecord], simulator: int | None = None) -> None:
        packed = pack_records(list(records))
        for each in self._hosted:
            if simulator in (None, each.number) and each.steps is not None:
                each.queued.append(packed)

    def reject(self, simulator: int, reason: str) -> None:
        raise AssertionError(f"simulator {simulator} is refused: {reason}")

    def close(self) -> None:
        self._hosted.clear()


class _Hosted:
    """A scene, and how far its conversation is."""

    def __init__(self, number: int, scene: Scene, academy: Academy, seed: int) -> None:
        self.number = number
        self.is_owed = False
        """Whether it waits for an answer."""
        self.steps: Steps | None = None
        self.queued: list[bytes] = []
        self._scene = scene
        self._academy = academy
        self._seed = seed
        self._described: set[str] = set()

    def tick(self, greeting: Sequence[SideChannelRecord]) -> Tick:
        if self.steps is None:
            self._academy.receive(pack_records(list(greeting)))
            self.steps = self._scene.reset(self._seed % 2**31)
        self.is_owed = True
        steps = {name: copy.deepcopy(batch) for name, batch in sorted(self.steps.items()) if len(batch)}
        new = {name: self._scene.behaviors[name] for name in steps if name not in self._described}
        self._described |= new.keys()
        messages = tuple(unpack_records(self._academy.outgoing()))
        return Tick(self.number, new, steps, messages, num_areas=copies_of(self._scene))

    def step(self, actions: Mapping[str, ActionBatch]) -> None:
        assert self.steps is not None
        self._hear()
        waiting = {name: len(batch) - batch.num_terminal for name, batch in self.steps.items()}
        specs = self._scene.behaviors
        idle = {name: ActionBatch.zeros(rows, specs[name].action_spec) for name, rows in waiting.items()}
        self.steps = self._scene.step({name: actions.get(name, idle[name]) for name in idle if waiting[name]})

    def reset(self) -> None:
        self._hear()
        self.steps = self._scene.reset()

    def _hear(self) -> None:
        self.is_owed = False
        for packed in self.queued:
            self._academy.receive(packed)
        self.queued.clear()


def shipped(record: Any) -> Any:
    """The record as another process gets it: by pickle 5, with arrays that may not be written."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(record, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(each.raw()) for each in buffers])


@contextmanager
def logged_by(worker: RolloutWorker) -> Iterator[None]:
    """What is logged within is logged by this worker; its process would have its own loggers."""
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(worker._log)
    try:
        yield
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(worker._log)


Arrival = Callable[[Sequence[int]], int]
"""Which of these workers, by number, answers next."""


class InProcessWorkers:
    """Workers that collect when they are waited for, one at a time; a ``WorkerPool``."""

    def __init__(
        self, options: RunOptions, num_workers: int, scenes: OpenScene, arrival: Arrival = min
    ) -> None:
        self._options = options
        self._scenes = scenes
        self._arrival = arrival
        self._request: bytes | None = None
        self.calls: dict[int, list[tuple[SampleRequest | None, CollectionQuota | None]]] = {}
        self._lost: list[WorkerLost] = []
        self.waits = 0
        self.workers: dict[int, RolloutWorker] = {}
        self.requests: list[SampleRequest] = []
        self.asked: list[tuple[int, CollectionQuota | None]] = []
        self.answers: list[tuple[int, SampleResult]] = []
        self.before_wait: Callable[[InProcessWorkers], None] = lambda pool: None
        for number in range(num_workers):
            self.spawn(number)

    def spawn(self, number: int) -> None:
        """Starts a worker, or starts it again."""
        first = number * self._options.env_settings.num_envs

        def bridge(settings: BridgeSettings) -> Any:
            return SceneBridge(settings, first, self._scenes)

        worker = RolloutWorker(number, self._options, make_bridge=bridge)
        worker.start()
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(worker._log)
        self.workers[number] = worker
        self.calls[number] = []

    def kill(self, number: int) -> None:
        """Ends a worker with all that it has not delivered."""
        self.workers.pop(number).close()
        del self.calls[number]
        self._lost.append(WorkerLost(number, "killed by the test"))

    def ready(self) -> Sequence[int]:
        return sorted(self.workers)

    def publish(self, request: SampleRequest) -> None:
        self.requests.append(request)

    def ask(self, worker: int, quota: CollectionQuota | None) -> None:
        self.asked.append((worker, quota))
        request = None if quota is None else shipped(self.requests[-1])
        self.calls[worker].append((request, shipped(quota)))

    def wait(self, timeout_s: float) -> list[tuple[int, SampleResult] | WorkerLost]:
        self.waits += 1
        self.before_wait(self)
        lost, self._lost = self._lost, []
        if lost:
            return [*lost]
        waiting = sorted(number for number, calls in self.calls.items() if calls)
        if not waiting:
            return []
        number = self._arrival(waiting)
        request, quota = self.calls[number].pop(0)
        with logged_by(self.workers[number]):
            result = shipped(self.workers[number].collect(request, quota))
        self.answers.append((number, result))
        return [(number, result)]

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


@dataclass(eq=False)
class Finished:
    """What is left of a run."""

    behaviors: Behaviors
    pool: InProcessWorkers
    source: RolloutWorkers
    curriculum: Curriculum

    def checkpoints(self) -> dict[str, Checkpoint]:
        return copy.deepcopy({name: checkpoint_of(each) for name, each in self.behaviors.items()})

    @property
    def steps(self) -> dict[str, int]:
        return {name: each.step for name, each in self.behaviors.items()}

    def batches(self) -> list[SampleBatch]:
        """What workers have delivered."""
        return [batch for _, answer in self.pool.answers for _, batch in answer.batches]

    def trajectories(self) -> list[Trajectories]:
        return [batch.trajectories for batch in self.batches() if batch.trajectories is not None]


@dataclass(eq=False)
class StopAfter:
    """The wish to end after so many turns of the loop."""

    turns: int
    looks: int = field(default=0)

    @property
    def requested(self) -> bool:
        self.looks += 1
        return self.looks > self.turns

    def request(self) -> None:
        self.turns = 0

    def take_save_request(self) -> bool:
        return False


def options_of(behaviors: Mapping[str, Any], **sections: Any) -> RunOptions:
    """Options of a run with two workers; ``sections`` are those of the file, ``distributed`` is added to."""
    given = {
        "behaviors": behaviors,
        "env_settings": {"env_path": "sim:basic", "seed": 1},
        **sections,
        "distributed": {"num_workers": 2, **sections.get("distributed", {})},
    }
    return parse_run_options(given).options


def learn_in_process(
    options: RunOptions,
    scenes: OpenScene,
    folder: Path,
    *,
    arrival: Arrival = min,
    before_wait: Callable[[InProcessWorkers], None] | None = None,
    resumed: Mapping[str, Checkpoint] | None = None,
    callbacks: Sequence[Callback] = (),
    learns: bool = True,
    turns: int | None = None,
    absence_timeout_s: float = math.inf,
    timeout_wait_s: float = 60.0,
) -> Finished:
    """Runs the training loop on workers in this process until everything is learned, or for so many turns.

    Args:
        options: of the run, with ``distributed``.
        scenes: makes the simulators.
        folder: an empty one; nothing is written there.
        arrival: the order of results.
        before_wait: called before each wait for results.
        resumed: checkpoints that behaviors go on from, by name.
        callbacks: code of users.
        learns: whether it learns, or only acts.
        turns: of the loop, after which it is stopped. Without, a run that does not end fails.
        absence_timeout_s: how long the run waits for a behavior that nobody has.
        timeout_wait_s: how long it waits for workers.
    """
    settings = options.distributed or DistributedSettings()
    curriculum = Curriculum(options.environment_parameters or {})
    called = CallbackList(callbacks)
    scheduler = TurnScheduler()
    decoupled = settings.collection == "async"

    def create(name: str, spec: BehaviorSpec, group_size: int) -> Behavior:
        compute = Compute(CPU, 1, decoupled=decoupled)
        if spec.members:
            spec = with_agent_counts(name, spec, options.teams[name], None)
            group_size = len(spec.agent_members)
        chosen = with_group_size(options.behavior_settings(name), group_size)
        rules = chosen.self_play
        behavior = Behavior(
            name, spec, chosen, compute,
            learns=learns, callbacks=called, turn_scheduler=scheduler,
            fixed_opponents=() if rules is None else fixed_opponents(name, rules, {}),
            env_steps=behaviors.env_steps,
        )  # fmt: skip
        if resumed is not None and name in resumed:
            restore(behavior, resumed[name])
        behavior.prepare()
        return behavior

    env_steps = EnvSteps(options.max_env_steps)
    behaviors = Behaviors(create, absence_timeout_s=absence_timeout_s, env_steps=env_steps)
    stop = StopAfter(_MOST_TURNS if turns is None else turns)
    timers = Timers()
    pool = InProcessWorkers(options, settings.num_workers, scenes, arrival)
    pool.before_wait = before_wait or pool.before_wait
    opened = RunFolder.open(folder, "run", inference=True)
    with Console(tty=False) as console:
        recorder = Recorder(Outputs(opened, console, [], timers), TrainingStatus(), curriculum=curriculum)
        source = RolloutWorkers(
            pool, settings, behaviors, curriculum, recorder.add, timers, timeout_wait_s=timeout_wait_s
        )
        run = Run(
            source=source,
            behaviors=behaviors,
            curriculum=curriculum,
            recorder=recorder,
            progress=ProgressLog(console),
            timers=timers,
            stop=stop,  # type: ignore[arg-type]
            callbacks=called,
        )
        called.on_run_start(RunView(options, opened.path, behaviors, stop.request))
        learn(run)
    pool.close()
    assert turns is not None or stop.looks <= _MOST_TURNS, f"no end after {_MOST_TURNS} turns of the loop"
    return Finished(behaviors, pool, source, curriculum)
