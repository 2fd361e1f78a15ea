"""A whole configuration file: every behavior, the simulators, the engine and the run's bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainer_service.config.distributed import DistributedSettings
from trainer_service.config.environment_parameters import EnvironmentParameter, lessons_of
from trainer_service.config.heterogeneous_groups import BehaviorName, Members, group_of_member, group_problems
from trainer_service.config.names import run_id_problem
from trainer_service.config.run.stop import StopSettings
from trainer_service.config.run.tracking import TrackerName
from trainer_service.config.section import Argument, Location, Section, error_at, section_error
from trainer_service.config.trainer import TrainerSettings
from trainer_service.config.values import (
    Count,
    CountOrUnlimited,
    Flag,
    NonNegative,
    Port,
    PositiveCount,
    Seed,
    Text,
    expected,
    flag,
    problem,
    whole_number,
)
from trainer_service.errors import ConfigError
from unity_bridge.names import did_you_mean, nearest_choice, same_folder
from unity_bridge.specs import PictureLayout


def _as_run_id(run_id: str) -> str:
    if reason := run_id_problem(run_id):
        raise problem(f"run id '{run_id}' {reason}")
    return run_id


def _as_resume(value: object) -> bool | int | str:
    """Reads whether to resume, or from which checkpoint; true means the newest."""
    if value in ("best", "latest"):
        return value == "latest" or "best"
    try:
        return flag(value)
    except PydanticCustomError:
        pass
    try:
        step = whole_number(value)
    except PydanticCustomError:
        step = 0
    if step < 1:
        raise expected("true, false, the step of a checkpoint, best or latest", value)
    return step


def _as_isolate(value: object) -> bool | str:
    """Reads whether simulators are isolated."""
    if value == "auto":
        return "auto"
    try:
        return flag(value)
    except PydanticCustomError:
        raise expected("auto, true or false", value) from None


_OLD_KEYS = {
    "curriculum": "lessons stand under 'environment_parameters', as NAME: {curriculum: [lesson, …]}",
    "parameter_randomization": "samplers stand under 'environment_parameters', as NAME: {sampler_type: …}",
    "default": "what all behaviors share stands under 'default_settings', and each of them under 'behaviors'",
}
"""Sections of ML-Agents before release 7, and their replacements."""

RunId = Annotated[Text, AfterValidator(_as_run_id)]
Resume = Annotated[
    bool | int | Literal["best"],
    WithJsonSchema(
        {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}, {"enum": ["best", "latest"]}]}
    ),
    BeforeValidator(_as_resume),
]

Isolation = Annotated[
    bool | Literal["auto"],
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["auto"]}]}),
    BeforeValidator(_as_isolate),
]


class EnvironmentSettings(Section):
    """The simulators to start, and what to do when one of them fails."""

    env_path: Annotated[Text | None, Argument("ENV", flag="--env")] = None
    """An executable, or an environment in Python: ``sim:NAME``, ``gym:ID``, ``FILE.py:NAME`` and others; null waits for
    simulators to come, and a resumed run keeps its own then, unless that is an executable. ML-Agents knows executables
    only."""

    env_args: Annotated[tuple[Text, ...] | None, Argument("…")] = None
    """Arguments for each simulator that is started; on a command line everything that follows."""

    base_port: Annotated[Port | None, Argument("PORT")] = None
    """Port of the first simulator that is started, the next ones counting up; null lets the system choose.
    ML-Agents counts from 5005."""

    num_envs: Annotated[PositiveCount, Argument("N")] = 1
    """Number of simulators to start. With two or more in processes of their own, runs of one seed differ, as the order
    in which their messages arrive does; in the trainer's process (``isolate: false``) they repeat."""

    isolate: Annotated[Isolation, Argument(python="bool | str")] = "auto"
    """Whether simulators in Python run in separate processes. In the trainer's process they are a few times faster, but
    a crash of the environment ends the run, which ``resume`` continues from its last save. ``auto`` is false with one
    simulator, except for lists of agents, schemes of plugins, ``--vector async``, recordings and windows. An addition
    to ML-Agents."""

    num_areas: Annotated[PositiveCount, Argument("N")] = 1
    """Copies of the training area in each simulator."""

    picture_layout: Annotated[PictureLayout, Argument("ORDER")] = "auto"
    """The order of numbers in uncompressed pictures of Unity's packages since 3.0: ``hwc`` (height, width, channels),
    as 3.0.0 and 4.0.0 write them, or ``chw``, as 4.0.1 and later do. ``auto`` goes by the version that the simulator
    names, for recordings, too, which name none. Packages from git between the two call themselves 4.0.0 and need
    ``chw``."""

    timeout_wait: Annotated[PositiveCount, Argument("SECONDS")] = 60
    """Seconds to wait for a simulator."""

    seed: Annotated[Seed, Argument("N")] = -1
    """Seed of the run; −1 chooses one from 0 to 9999. On one CPU a run repeats bit for bit if it has one
    simulator, or if all run in the trainer's process; with two or more processes the order of arrival differs."""

    max_lifetime_restarts: Annotated[CountOrUnlimited, Argument("N")] = 10
    """How often one simulator may be restarted; −1 means without limit."""

    restarts_rate_limit_n: Annotated[CountOrUnlimited, Argument("N")] = 1
    """How often one may be restarted within restarts_rate_limit_period_s; −1 means without limit."""

    restarts_rate_limit_period_s: Annotated[Count, Argument("SECONDS")] = 60
    """Seconds over which restarts_rate_limit_n counts."""


class EngineSettings(Section):
    """Display and speed of a simulator's engine."""

    width: Annotated[PositiveCount, Argument("N")] = 84
    """Pixels of the window."""

    height: Annotated[PositiveCount, Argument("N")] = 84
    """Pixels of the window."""

    quality_level: Annotated[Count, Argument("N")] = 5
    """Rendering quality, as the engine numbers it."""

    time_scale: Annotated[NonNegative, Argument("X")] = 20.0
    """Simulated seconds for each real one."""

    target_frame_rate: Annotated[CountOrUnlimited, Argument("N")] = -1
    """Frames per second to aim at; −1 means as many as possible."""

    capture_frame_rate: Annotated[Count, Argument("N")] = 60
    """Simulated frames per second."""

    no_graphics: Annotated[Flag, Argument()] = False
    """Whether the engine runs without a window."""

    no_graphics_monitor: Annotated[Flag, Argument()] = False
    """Whether only the first simulator has a window."""


class CheckpointSettings(Section):
    """Name and folder of the run, and the weights that it starts from."""

    run_id: Annotated[RunId, Argument("ID")] = "ppo"
    """Name of the run's folder, or the folder in ``results_dir``."""

    initialize_from: Annotated[Text | None, Argument("ID")] = None
    """Another run to take initial weights from: its id, or its folder."""

    load_model: Flag = False
    """An old spelling that only warns; resume is meant."""

    resume: Annotated[Resume, Argument("STEP|best|latest", python="bool | int | str")] = False
    """Whether to continue the run: from its newest checkpoint (true, ``latest``), from that of a step, or from the
    one with the best score (``best``). ML-Agents knows true and false."""

    autosave_interval_s: Annotated[PositiveCount, Argument("SECONDS")] = 300
    """Seconds between two saves for ``resume``: the most that a power cut can cost. The numbered checkpoints of
    ``checkpoint_interval`` come besides. An addition to ML-Agents."""

    force: Annotated[Flag, Argument()] = False
    """Whether an existing run of this id may be overwritten."""

    train_model: Flag = False
    """An old spelling that only warns; without inference the run trains."""

    inference: Annotated[Flag, Argument()] = False
    """Whether to act without learning, and write nothing."""

    results_dir: Annotated[Text, Argument("DIR", python="str | os.PathLike[str]")] = "results"
    """The folder of all runs."""

    @model_validator(mode="before")
    @classmethod
    def _name_of_folder(cls, values: Any) -> Any:
        """Reads ``results/first``, which a shell completes, as the run ``first`` in ``results``."""
        if not isinstance(values, dict) or not isinstance(values.get("run_id"), str):
            return values
        folder = Path(values["run_id"])
        results = Path(str(values.get("results_dir", cls.model_fields["results_dir"].default)))
        return {**values, "run_id": folder.name} if folder.parent == results and results.name else values


Precision = Literal["float32", "bfloat16"]
"""The floating-point format of products."""


def _unless_auto(device: object) -> object:
    return None if device == "auto" else device


class TorchSettings(Section):
    """Device of the networks, and the precision in which they encode pictures."""

    device: Annotated[
        Text | None, BeforeValidator(_unless_auto), Argument("DEVICE", flag="--torch-device")
    ] = None
    """``cpu``, ``cuda``, ``cuda:0`` …; null or ``auto`` decides for each behavior. A GPU, if there is one, computes
    behaviors with pictures, and policies for which ``batch_size`` times the number of weights is 2^27 or more. That is
    256 rows of two layers of 1,024 units, or of an LSTM of 512. The CPU computes the others. Learner ranks take a GPU
    each if there is one."""

    precision: Precision = "float32"
    """``bfloat16`` encodes pictures with half the bits, in updates and in acting: faster where the processor has
    instructions for it, as CPUs with AVX-512 BF16 or AMX and GPUs since NVIDIA's Ampere have. Weights, everything
    behind the encoders, checkpoints and models stay float32. An addition to ML-Agents."""


LogFormat = Literal["text", "json"]
"""The form of the lines that a run logs on standard output."""


class EvaluationSettings(Section):
    """Evaluations of the current policies on a simulator of their own, without influence on training.

    An addition to ML-Agents.
    """

    every_steps: PositiveCount = 50_000
    """How often, in agent steps of the behavior that has most."""

    episodes: PositiveCount = 20
    """Episodes of each behavior, counted per agent, and the whole episodes of groups among them."""

    max_episode_steps: PositiveCount | None = None
    """Steps of an agent after which an episode is cut: it counts as truncated, with its return so far. Without it, ten
    times the longest training episode so far, at least 1,000."""

    seed: Count = 20_000
    """Seed of the simulator and of sampled actions, equal for every evaluation."""

    stochastic: Flag = False
    """Whether actions are sampled, instead of the likeliest ones."""

    film: Flag = False
    """Whether the first agent's best episode of each evaluation is filmed, as a GIF in the run's folder and in
    TensorBoard. For bundled environments that draw themselves."""


class RunOptions(Section):
    """All options of a run. Keys, defaults and meaning are those of ML-Agents."""

    default_settings: TrainerSettings | None = None
    """Settings that every behavior inherits, listed below or not."""

    behaviors: dict[BehaviorName, TrainerSettings] = Field(default_factory=dict)
    """Settings by behavior name, without the team id."""

    teams: dict[BehaviorName, Members] = Field(default_factory=dict)
    """Heterogeneous groups, by name: the behaviors that learn as one, as a list or with the most agents of each. The
    group's settings stand under its name. An addition to ML-Agents."""

    env_settings: EnvironmentSettings = EnvironmentSettings()
    """The simulators."""

    engine_settings: EngineSettings = EngineSettings()
    """The engine inside them."""

    environment_parameters: dict[Text, EnvironmentParameter] | None = None
    """Parameters of the task in the simulators."""

    evaluation: EvaluationSettings | None = None
    """Evaluations during the run; null for none. An addition to ML-Agents."""

    max_env_steps: Annotated[PositiveCount | None, Argument("N")] = None
    """Environment steps after which the run ends, where ``max_steps`` are not used up before; null: however many. One
    is one step of one copy of the task, with all of its agents (docs/running.md). An addition to ML-Agents."""

    stop: StopSettings | None = None
    """Rules that end the run before ``max_steps``; null for none. An addition to ML-Agents."""

    checkpoint_settings: CheckpointSettings = CheckpointSettings()
    """The run's bookkeeping."""

    torch_settings: TorchSettings = TorchSettings()
    """Settings of the learner's device."""

    distributed: DistributedSettings | None = None
    """Rollout workers and learner ranks; null keeps everything in one process. An addition to ML-Agents."""

    track: Annotated[tuple[TrackerName, ...], Argument("NAME")] = ()
    """Trackers of experiments that get what TensorBoard gets: ``mlflow``, ``trackio``, ``wandb``, and those of plugins;
    the flag can be repeated. An addition to ML-Agents."""

    debug: Annotated[Flag, Argument()] = False
    """Whether debug messages are logged."""

    log_format: Annotated[LogFormat, Argument("FORMAT")] = "text"
    """``json`` logs one JSON object a line on standard output, with the metrics of each summary, and draws no table. An
    addition to ML-Agents."""

    metrics_port: Annotated[Port | None, Argument("PORT")] = None
    """A port of this machine on which the run answers Prometheus (``/metrics``) and health checks (``/health``); null
    for none. It needs the package prometheus-client. An addition to ML-Agents."""

    plugins: dict[str, Text] = Field(default_factory=dict)
    """Plugins that the run was made with, each with its distribution and version. Written by the trainer, which names
    the distribution where one is missing later. An addition to ML-Agents."""

    @classmethod
    def unknown_key(cls, key: str, siblings: Mapping[str, type[Section]]) -> str:
        if key in _OLD_KEYS:
            return f"not read any more: {_OLD_KEYS[key]}"
        if key in TrainerSettings.model_fields:
            return f"unknown key (did you mean behaviors.NAME.{key} or default_settings.{key}?)"
        if nearest_choice(key, cls.model_fields):
            return super().unknown_key(key, siblings)
        return f"{super().unknown_key(key, siblings)}. A behavior stands under 'behaviors'"

    @model_validator(mode="after")
    def _groups_can_learn(self) -> Self:
        found = [
            error_at(problem(text), location, None)
            for location, text in group_problems(self.teams, self.behaviors, self.default_settings)
        ]
        if found:
            raise ValidationError.from_exception_data("section", found)
        return self

    @model_validator(mode="after")
    def _names_have_folders_of_their_own(self) -> Self:
        places = {name: ("behaviors", name) for name in self.behaviors}
        for team, members in self.teams.items():
            places |= dict.fromkeys([team, *members], ("teams", team))
        for name, place in places.items():
            if other := same_folder(name, places):
                text = f"'{name}' and '{other}' share a folder where a file system ignores case: rename one of them"
                raise section_error(place, text)
        return self

    @model_validator(mode="after")
    def _lessons_can_end(self) -> Self:
        for name, parameter in (self.environment_parameters or {}).items():
            for position, lesson in enumerate(lessons_of(name, parameter)[:-1]):
                behavior = lesson.completion_criteria.behavior if lesson.completion_criteria else None
                where = ("environment_parameters", name, "curriculum", position, "completion_criteria")
                if behavior is not None:
                    self._require_learner(behavior, (*where, "behavior"))
        return self

    @model_validator(mode="after")
    def _targets_can_be_reached(self) -> Self:
        targets = None if self.stop is None else self.stop.target_return
        for name in targets if isinstance(targets, dict) else ():
            self._require_learner(name, ("stop", "target_return", name))
        return self

    @model_validator(mode="after")
    def _stale_rollouts_are_learned_from(self) -> Self:
        distributed = self.distributed
        if distributed is None or not distributed.num_workers or distributed.collection == "sync":
            return self
        refused = [
            f"'{settings.trainer_type}' ({name})"
            for name, settings in self.settings_by_key().items()
            if not settings.hyperparameters.supports_stale_rollouts
        ]
        if refused:
            who = ", ".join(refused)
            text = f"expected 'sync', got 'async', but {who} cannot learn from rollouts of an older policy"
            raise section_error(("distributed", "collection"), text)
        return self

    def _require_learner(self, behavior: str, where: Location) -> None:
        """Raises a mistake at the name of a behavior that does not learn by itself, or at all."""
        if team := group_of_member(self.teams, behavior):
            raise section_error(where, f"expected the team '{team}', of which '{behavior}' is a member")
        if self.default_settings is None and behavior not in self.behaviors:  # else any may show up
            listed = ", ".join(f"'{known}'" for known in self.behaviors) or "none"
            hint = did_you_mean(behavior, self.behaviors, "is '{}' meant?")
            text = f"expected a behavior that is listed, which are {listed}, got '{behavior}'{hint}"
            raise section_error(where, text)

    def settings_by_key(self) -> dict[str, TrainerSettings]:
        """Settings by their key, ``behaviors.NAME``, or ``default_settings`` if no behavior is listed."""
        named = {f"behaviors.{name}": settings for name, settings in self.behaviors.items()}
        if not named and self.default_settings is not None:
            return {"default_settings": self.default_settings}  # beside listed ones it may serve nobody
        return named

    @property
    def configured_names(self) -> list[str]:
        """Names of all behaviors, heterogeneous groups and their members."""
        members = (member for team in self.teams.values() for member in team)
        return list(dict.fromkeys([*self.behaviors, *self.teams, *members]))

    def behavior_settings(self, name: str) -> TrainerSettings:
        """Returns the settings of behavior ``name`` (without its team id).

        Raises:
            ConfigError: it is not listed and there are no default_settings.
        """
        if name in self.behaviors:
            return self.behaviors[name]
        if self.default_settings is not None:
            return self.default_settings
        hint = did_you_mean(name, self.configured_names, "is '{}' meant?")
        listed = ", ".join(map(self._with_members, self.behaviors)) or "no behaviors"
        raise ConfigError(
            f"The behavior name '{name}' has not been specified in the trainer configuration, which lists "
            f"{listed}{hint}. Please add an entry for '{name}' under 'behaviors', or set 'default_settings'."
        )

    def _with_members(self, name: str) -> str:
        """A listed behavior, with the members of a heterogeneous group."""
        members = ", ".join(f"'{member}'" for member in self.teams.get(name, ()))
        return f"'{name}' (the team of {members})" if members else f"'{name}'"
