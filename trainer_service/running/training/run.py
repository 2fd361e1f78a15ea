"""The record of a run's parts, and the factory that makes each of them from the options."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Protocol

import torch

from trainer_service.config import RunOptions, TrainerSettings, dump_run_options
from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters
from trainer_service.config.reading.document import dump_document
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute, Learner, make_learner
from trainer_service.learning.algorithms.common.member_policy import ExportModel
from trainer_service.learning.algorithms.common.observation_selection import sensors_of, with_group_size
from trainer_service.learning.replay.hindsight import GoalTask
from trainer_service.learning.rollout.sensor_roles import SensorRole
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.memory_need import available_memory, memory_need
from trainer_service.running.behaviors.registry import MAX_LOGGED_BEHAVIORS, Behaviors
from trainer_service.running.behaviors.saving import initialize, load_replay, restore
from trainer_service.running.behaviors.self_play import TurnScheduler
from trainer_service.running.callbacks import CallbackList
from trainer_service.running.collection.heterogeneous_groups import with_agent_counts
from trainer_service.running.collection.router import EnvSteps
from trainer_service.running.curriculum import Curriculum, LessonHistory, lesson_mismatches
from trainer_service.running.evaluation.periodic import PeriodicEvaluator
from trainer_service.running.evaluation.simulator import EvaluationSimulator
from trainer_service.running.metrics import (
    ConsoleWriter,
    GaugeWriter,
    JsonlWriter,
    RunEnd,
    SummaryWriter,
)
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.tensorboard import TensorBoardWriter
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import checkpoint_digest
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.compute import (
    device_for,
    divided_threads,
    memory_for,
    out_of_memory,
    seed_of,
    threads_for,
)
from trainer_service.running.training.opponent_pools import Checkpoints, fixed_opponents
from trainer_service.running.training.progress_log import ExchangeHint, ProgressLog
from trainer_service.running.training.recorder import Outputs, Recorder
from trainer_service.running.training.stop_rules import StopRules
from trainer_service.running.training.stop_signals import StopSignals, UpdateInterrupted
from trainer_service.running.training.warm_start import (
    WarmStart,
    make_newest,
    trained_group_size,
    trained_spec,
    warm_start_of,
)
from unity_bridge.codec.protocol import API_VERSION
from unity_bridge.errors import BridgeError
from unity_bridge.programs.cores import cores_of_each
from unity_bridge.programs.executables import Command
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec
from unity_bridge.throttled_logger import DETAIL, ThrottledLogger

Lessons = tuple[Mapping[str, int], Mapping[str, LessonHistory]]
"""Number of each parameter's lesson, and what lessons remember of each behavior."""

_logger = logging.getLogger(__name__)


class Source(Protocol):
    """A source of experience. It delivers collected samples to the behaviors of a run."""

    def collect(self) -> None:
        """Waits for experience, though not for long."""
        ...

    def send_parameters(self) -> None:
        """Lets simulators know of the lessons that are in force now."""
        ...

    def restart(self) -> None:
        """Resets all episodes."""
        ...

    def act(self) -> None:
        """Lets everything that waits continue, with the policies as they are now."""
        ...

    @property
    def num_simulators(self) -> int:
        """Simulators, or rollout workers, that are there now."""
        ...

    @property
    def num_restarts(self) -> int:
        """How often one of them was started again."""
        ...


class SharedLearners(Protocol):
    """Learners in several processes that share the updates of a run."""

    @property
    def on_this_machine(self) -> int:
        """Ranks that share this machine's cores."""
        ...

    def make(self, name: str, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> Learner:
        """Makes the learner of a behavior, on every rank. Raises ValueError where it cannot be shared."""
        ...

    def set_threads(self, threads: int) -> None:
        """Sets torch's threads on every rank."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Run:
    """Everything that takes part in learning."""

    source: Source
    """Where experience comes from: simulators of this process, or rollout workers."""

    behaviors: Behaviors
    """Policies and their algorithms."""

    curriculum: Curriculum
    """The lesson of each environment parameter."""

    recorder: Recorder
    """Summaries and checkpoints."""

    progress: ProgressLog
    """Lines between summaries."""

    timers: Timers
    """Where the time goes."""

    stop: StopSignals
    """The wish to end, from a signal or a callback."""

    stop_rules: StopRules = field(default_factory=lambda: StopRules(None))
    """Rules that end the run before its budgets are used."""

    evaluator: PeriodicEvaluator | None = None
    """Evaluations in between; None where they are not wanted."""

    callbacks: CallbackList = field(default_factory=CallbackList)
    """Code of users."""

    def finish(self, error: BaseException | None = None) -> None:
        """Saves the run for the last time. Raises SaveError or NotFiniteError, as the recorder does.

        error: what ended the run, if it was one.
        """
        if self.stop.requested and any(behavior.learns for behavior in self.behaviors.values()):
            _logger.info("Learning was interrupted. Saving what was learned.")
        elif error is None and (env_steps := self.behaviors.env_steps).used_up:
            _logger.info(
                "The run ends after %d environment steps, of %d (max_env_steps).",
                env_steps.taken,
                env_steps.budget,
            )
        end: RunEnd = "failed" if error is not None else "interrupted" if self.stop.signalled else "finished"
        try:
            self.recorder.finish(list(self.behaviors.values()), end, self._ended_by(error))
        finally:
            if self.evaluator is not None:
                self.evaluator.finish()
            self.callbacks.on_run_end()

    def _ended_by(self, error: BaseException | None) -> str:
        """Returns the reason why the run ended."""
        if error is not None:
            told = isinstance(error, UserError | BridgeError)
            return str(error) if told else f"{type(error).__name__}: {error}"
        if self.stop.requested:
            return self.stop.first_signal or "a callback"
        if self.stop_rules.reason:
            return f"stop: {self.stop_rules.reason}"
        if self.behaviors.env_steps.used_up:
            return "its budget of environment steps (max_env_steps), which is used up"
        return "its budget, which is used up"


@contextmanager
def saved_at_the_end(run: Run) -> Iterator[None]:
    """A context that saves the run at its end, also after an exception.

    An interrupted update is saved in its current state, unless a number in it is not finite: the gradient steps so
    far are kept, the rest of its rollout is not.

    Raises:
        OutOfMemory: an error within the context had too little memory as its cause, on the device or elsewhere.
    """
    try:
        try:
            yield
        except UpdateInterrupted:
            _logger.info(
                "An update that takes longer was broken off: its gradient steps so far are kept, the rest of its "
                "rollout is not."
            )
        except Exception as error:
            explained = out_of_memory(error, list(run.behaviors.values()))
            if explained is None:
                raise
            raise explained from None
    except BaseException as ended_by:
        try:
            run.finish(ended_by)
        except Exception as error:
            _logger.error("%s", error, exc_info=None if isinstance(error, UserError) else error)
        raise
    run.finish()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunFactory:
    """Maker of a run and, while it continues, of its behaviors."""

    options: RunOptions
    command: Command | None
    """The simulator; None where simulators attach."""

    folder: RunFolder
    console: Console
    stop: StopSignals
    curriculum: Curriculum
    callbacks: CallbackList
    warm_starts: Mapping[str, WarmStart]
    """The checkpoints that behaviors start from, by name."""

    opponents: Checkpoints = field(default_factory=dict)
    """Checkpoints of fixed opponents."""

    writers: Sequence[SummaryWriter] = ()
    """Writers besides the run's own, not opened yet."""

    device: torch.device
    """The one that the user named, or the best one at hand, which a behavior need not take (see ``device_for``)."""
    goal_task: GoalTask | None = None
    """The task of the run's goal environment; None where no replay buffer replaces goals."""
    ranks: SharedLearners | None = None
    """Learner ranks that share the updates; None for one learner."""
    export_model: ExportModel | None = None
    """Writes a policy as a model; None for no models."""

    def make(self, make_source: Callable[[Behaviors, Recorder, Timers, str], Source]) -> Run:
        """The run with the source of experience that is made for its behaviors, and for this type of device.

        Raises:
            UserError: the list of a resumed run's checkpoints is damaged, and the folder may not be written to.
        """
        options, folder = self.options, self.folder
        self.console.banner(communicator_api=API_VERSION, pytorch=torch.__version__)
        status = self._status()
        for parameter in self.curriculum.lessons:
            _logger.info("%s", self.curriculum.describe(parameter))
        timers = Timers()
        environment = options.env_settings
        hint = ExchangeHint(timers, environment.env_path, environment.num_envs)
        progress = ProgressLog(self.console, hint.check)
        stop_rules = StopRules(options.stop, folder, evaluates=options.evaluation is not None)
        writers = [*_writers(folder, timers), progress, stop_rules, *self.writers]
        for writer in writers:
            writer.open()
        autosave_s = options.checkpoint_settings.autosave_interval_s
        named = [*options.behaviors, *options.teams, *self.curriculum.watched_behaviors, *stop_rules.named]
        recorder = Recorder(
            Outputs(folder, self.console, writers, timers, self.export_model),
            status,
            expected=dict.fromkeys(named),
            autosave_s=autosave_s,
            curriculum=self.curriculum,
            callbacks=self.callbacks,
        )
        if folder.writable:
            _logger.info(
                "Saving to '%s' every %d s (autosave_interval_s), at checkpoints and at the end; --resume continues.",
                folder.given, autosave_s, extra=DETAIL,
            )  # fmt: skip
        turn_scheduler = TurnScheduler()
        throttled = ThrottledLogger(_logger)

        def create(name: str, spec: BehaviorSpec, group_size: int) -> Behavior:
            with memory_for(name, options.behavior_settings(name)):
                behavior = self._behavior(
                    name, spec, group_size, turn_scheduler, progress, behaviors.env_steps
                )
            self._set_threads([*behaviors.values(), behavior])
            self._start(behavior, writers, status)
            if folder.writable and not behaviors:  # the first one: nothing was refused
                folder.begin(dump_run_options(_as_repeated(options)))
            behavior.prepare()
            _describe_settings(writers, behavior, throttled)
            return behavior

        behaviors = Behaviors(
            create,
            listed=options.configured_names,
            absence_timeout_s=options.env_settings.timeout_wait,
            memory_need=lambda *declared: memory_need(*self._resolved(*declared)[:2]),
            available_memory=lambda: available_memory(self.device),
            env_steps=self._env_steps(),
            source="worker" if options.distributed and options.distributed.num_workers else "simulator",
        )
        return Run(
            source=make_source(behaviors, recorder, timers, self.device.type),
            behaviors=behaviors,
            curriculum=self.curriculum,
            recorder=recorder,
            progress=progress,
            timers=timers,
            stop=self.stop,
            stop_rules=stop_rules,
            evaluator=self._evaluator(writers, progress),
            callbacks=self.callbacks,
        )

    def _status(self) -> TrainingStatus:
        """The list of checkpoints that a resumed run left; sets the curriculum to the lessons in it."""
        fresh = TrainingStatus(torch_version=torch.__version__)
        if not self.options.checkpoint_settings.resume:
            return fresh
        try:
            status = self.folder.read_status(torch_version=torch.__version__)
        except UserError as error:
            # A damaged list costs the lessons, not the run.
            if not self.folder.writable:
                raise
            aside = self.folder.set_aside([self.folder.status])
            _logger.warning("%s Nothing is left to do: it was moved to '%s'.", error, aside)
            status = fresh
        self._resume_curriculum(status)
        return status

    def _resume_curriculum(self, status: TrainingStatus) -> None:
        numbers, histories = self._lessons_of_checkpoints() or self._lessons_of_status(status)
        for mismatch in lesson_mismatches(self.options.environment_parameters or {}, numbers):
            _logger.warning("%s", mismatch)
        self.curriculum.resume(numbers, histories)

    def _lessons_of_checkpoints(self) -> Lessons | None:
        """Lessons as all checkpoints together say: parameters only move on. None where one of them says nothing."""
        states = {
            name: getattr(start.source, "lessons", None)
            for name, start in self.warm_starts.items()
            if start.is_resume
        }
        numbers: dict[str, int] = {}
        histories: dict[str, LessonHistory] = {}
        for name, state in states.items():
            if state is None:
                return None
            histories[name] = state.history
            numbers |= {each: max(number, numbers.get(each, 0)) for each, number in state.numbers.items()}
        return (numbers, histories) if states else None

    def _lessons_of_status(self, status: TrainingStatus) -> Lessons:
        """Lessons of the list of checkpoints, where ML-Agents keeps them: those of the run's end."""
        older = {name for name, start in self.warm_starts.items() if start.is_resume and not start.is_newest}
        if older and status.lessons:
            _logger.warning("Lessons are as they were at the end: these checkpoints have none of their own.")
        known = status.behaviors.items()
        return status.lessons, {name: each.lesson_history for name, each in known if name not in older}

    def _env_steps(self) -> EnvSteps:
        """The environment steps so far, as the checkpoints say that the run resumes from, and the budget."""
        sources = [start.source for start in self.warm_starts.values() if start.is_resume]
        taken = max((getattr(source, "env_steps", 0) for source in sources), default=0)
        acts_only = self.options.checkpoint_settings.inference
        return EnvSteps(None if acts_only else self.options.max_env_steps, taken)

    def _evaluator(self, writers: Sequence[SummaryWriter], progress: ProgressLog) -> PeriodicEvaluator | None:
        """The run's evaluator, where one is wanted and the simulator is a program."""
        settings = self.options.evaluation
        if settings is None or self.command is None or not self.folder.writable:
            return None
        return PeriodicEvaluator(
            settings,
            EvaluationSimulator(self.options, self.command, settings.seed),
            self.folder,
            self.curriculum,
            export_model=self.export_model,
            writers=writers,
            progress=progress.evaluating,
            stop_requested=lambda: self.stop.requested,
            on_step=self.callbacks.listener("on_evaluation_step"),
        )

    def _behavior(
        self,
        name: str,
        spec: BehaviorSpec,
        group_size: int,
        turn_scheduler: TurnScheduler,
        progress: ProgressLog,
        env_steps: EnvSteps,
    ) -> Behavior:
        """A behavior that has learned nothing yet. group_size: as far as the first message shows it."""
        options = self.options
        spec, settings, size = self._resolved(name, spec, group_size)
        if size == 1 and not settings.hyperparameters.needs_global_state:
            _warn_of_unseen_state(name, spec)

        opponents = []
        if settings.self_play is not None and not options.checkpoint_settings.inference:
            opponents = fixed_opponents(name, settings.self_play, self.opponents)

        def before_minibatch(minibatch: int, of: int) -> None:
            progress.updating(name, minibatch, of)
            self.stop.raise_if_overdue()

        return Behavior(
            name,
            spec,
            settings,
            Compute(
                self._device_of(name, spec, settings),
                seed_of(options.env_settings.seed, name),
                before_minibatch,
                decoupled=_is_async(options),
                precision=options.torch_settings.precision,
                behavior=name,
                goal_task=self.goal_task,
            ),
            learns=not options.checkpoint_settings.inference,
            is_watched=name in self.curriculum.watched_behaviors,
            callbacks=self.callbacks,
            turn_scheduler=turn_scheduler,
            fixed_opponents=opponents,
            env_steps=env_steps,
            make_learner=make_learner if self.ranks is None else partial(self.ranks.make, name),
        )

    def _resolved(
        self, name: str, spec: BehaviorSpec, group_size: int
    ) -> tuple[BehaviorSpec, TrainerSettings, int]:
        """Returns the final spec, settings and group size of a behavior."""
        start = warm_start_of(name, self.warm_starts)
        if spec.members:
            spec = with_agent_counts(name, spec, self.options.teams[name], trained_spec(start))
            size = len(spec.agent_members)
        else:
            size = trained_group_size(start) or group_size
        return spec, with_group_size(self.options.behavior_settings(name), size), size

    def _device_of(self, name: str, spec: BehaviorSpec, settings: TrainerSettings) -> torch.device:
        """The device of a behavior: all learner ranks have one device, whatever there is to learn."""
        if self.ranks is not None:
            return self.device
        cpu = Compute(torch.device("cpu"), 0)
        return device_for(
            self.options.torch_settings.device,
            self.device,
            lambda: Behavior(name, spec, settings, cpu, learns=False),
        )

    def _set_threads(self, behaviors: Sequence[Behavior]) -> None:
        """Lets updates use as many cores as these behaviors' minibatches are worth; ranks of a machine share them.

        On every rank all is computed with one number of threads: with two, sums would have other bits.
        """
        if self.ranks is None:
            threads = threads_for(behaviors)
            torch.set_num_threads(1)
            if threads > 1:
                for behavior in behaviors:
                    behavior.threads = behavior.collector.threads = divided_threads(behavior, threads)
        else:
            self.ranks.set_threads(threads_for(behaviors, cores_of_each(self.ranks.on_this_machine)))

    def _start(self, behavior: Behavior, writers: Iterable[SummaryWriter], status: TrainingStatus) -> None:
        """Lets a behavior resume from its checkpoint, or take another run's weights, where there are any."""
        name, saved = behavior.name, self.options.checkpoint_settings
        seed = seed_of(self.options.env_settings.seed, name)
        start = warm_start_of(name, self.warm_starts)
        if start is None:
            if saved.resume:
                _logger.warning("'%s' has no checkpoint in this run: it starts from step 0.", name)
            elif saved.initialize_from is not None:
                _logger.warning(
                    "'%s' has no checkpoint in '%s': it starts from scratch.", name, saved.initialize_from
                )
        elif start.is_resume:
            checkpoint = start.checkpoint_for(behavior, seed)
            restore(behavior, checkpoint)
            rating = status.behavior(name).elo
            if behavior.self_play is not None and checkpoint.self_play is None and rating is not None:
                behavior.self_play.rating = rating  # ML-Agents keeps it in the list of checkpoints alone
            _logger.info("Resuming '%s' from step %d.", name, behavior.step)
            if behavior.learns and behavior.step >= behavior.settings.max_steps:
                _logger.warning(
                    "'%s' has used its max_steps of %d: nothing to learn. Raise max_steps to continue.",
                    name, behavior.settings.max_steps,
                )  # fmt: skip
            if self.folder.writable:
                members = [member.behavior for member in behavior.spec.members]
                make_newest(self.folder, name, behavior.step, start.path, members)
            restore_replay(behavior, self.folder.replay(name), start.path)
            for writer in writers:
                writer.truncate_after(name, behavior.step)
        else:
            initialize(behavior, start.checkpoint_for(behavior, seed))
            source = behavior.settings.init_path or saved.initialize_from
            _logger.info("Starting '%s' from step 0 with the weights of '%s'.", name, source)


def _as_repeated(options: RunOptions) -> RunOptions:
    """The options without those of one start, which would overwrite a run or need one if the file is used again."""
    once = {"resume": False, "force": False, "inference": False, "load_model": False, "train_model": False}
    saved = options.checkpoint_settings.model_copy(update=once)
    return options.model_copy(update={"checkpoint_settings": saved})


def _is_async(options: RunOptions) -> bool:
    """Whether rollouts may be of an older policy than the one that learns from them."""
    distributed = options.distributed
    return distributed is not None and distributed.num_workers > 0 and distributed.collection == "async"


def restore_replay(behavior: Behavior, path: Path, checkpoint: Path) -> None:
    """Restores the replay buffer of a behavior that learns from one, if it was saved; warns if it was not.

    One that was saved at another moment than the checkpoint is taken too: what it holds was lived through, and learning
    from it is worth more than an empty buffer. Then the run continues, but not as it would have without a stop.

    One that has learned all it shall gets its buffer, too, for the end of the run saves it again.

    checkpoint: the file that the behavior resumes from.
    """
    tuning = behavior.settings.hyperparameters
    if not isinstance(tuning, ReplayHyperparameters) or not behavior.learns:
        return
    if not tuning.save_replay_buffer or not path.is_file():
        if behavior.finished:
            return
        why = f"'{path}' is missing" if tuning.save_replay_buffer else "save_replay_buffer is false"
        _logger.warning(
            "'%s' starts with an empty replay buffer (%s) and learns again after %d steps.",
            behavior.name, why, tuning.learning_starts,
        )  # fmt: skip
        return
    stamp = load_replay(behavior, path)
    if stamp.checkpoint == checkpoint_digest(checkpoint):
        _logger.info("'%s' continues with its replay buffer.", behavior.name)
    else:
        _logger.warning(
            "'%s' continues from step %d with a replay buffer that was saved at step %d: its experience is kept, but "
            "the run will not repeat what it did before. Remove '%s' to continue with an empty one.",
            behavior.name, behavior.step, stamp.step, path,
        )  # fmt: skip


def _writers(folder: RunFolder, timers: Timers) -> list[SummaryWriter]:
    if not folder.writable:
        return [ConsoleWriter()]
    return [
        ConsoleWriter(), JsonlWriter(folder.metrics), TensorBoardWriter(folder.behavior), GaugeWriter(timers)
    ]  # fmt: skip


def _warn_of_unseen_state(name: str, spec: BehaviorSpec) -> None:
    """Warns of a sensor that no learner of agents without groups looks at."""
    if sensors_of(spec, SensorRole.GLOBAL_STATE):
        _logger.warning(
            "'%s': the sensor '%s' is not shown to the policy. A sensor of this name is for critics of groups "
            "(state: environment); give it another name if the agent shall see it.", name, GLOBAL_STATE,
        )  # fmt: skip


def _describe_settings(
    writers: Iterable[SummaryWriter], behavior: Behavior, throttled: ThrottledLogger
) -> None:
    """Shows a behavior's settings: in the log, in ML-Agents' words, and to all writers."""
    counts: dict[str, int | None] = {member.behavior: member.num_agents for member in behavior.spec.members}
    teams = {behavior.name: counts} if counts else {}
    text = dump_run_options(RunOptions(behaviors={behavior.name: behavior.settings}, teams=teams))
    own = behavior.settings.model_dump(mode="json", exclude_none=True)
    listed = dump_document(own)
    throttled.log(
        "settings",
        f"Hyperparameters for behavior name {behavior.name}:\n{indent(listed.rstrip(), '    ')}",
        most=MAX_LOGGED_BEHAVIORS,
        level=logging.INFO,
        extra=DETAIL,
    )
    for writer in writers:
        writer.write_settings(behavior.name, text)
