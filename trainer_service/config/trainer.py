"""The settings of one behavior's training, with its ``behavioral_cloning``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from trainer_service.config.hyperparameters.common import Contradiction, Hyperparameters
from trainer_service.config.hyperparameters.registry import (
    ALGORITHM_PLUGINS,
    HYPERPARAMETERS,
    MLAGENTS_TRAINERS,
    hyperparameters_of,
)
from trainer_service.config.network import NetworkSettings
from trainer_service.config.rewards import (
    REWARD_SIGNAL_PLUGINS,
    REWARD_SIGNALS,
    ExtrinsicSettings,
    RewardSignalSettings,
    leading_signal,
    reward_signal_settings,
)
from trainer_service.config.section import (
    Remark,
    Section,
    build_each,
    error_at,
    nested_errors,
    plain_message,
    require_choice,
    root_errors,
    unknown_key_message,
)
from trainer_service.config.self_play import SelfPlaySettings
from trainer_service.config.values import (
    Count,
    Flag,
    NonNegative,
    PositiveCount,
    Text,
    WholeNumber,
    problem,
)
from unity_bridge.errors import PluginError
from unity_bridge.names import nearest_choice
from unity_bridge.plugins import Plugin

_OLD_KEYS = {
    "trainer": "write trainer_type",
    "summary_path": "results go to the folder of the run id",
    "model_path": "results go to the folder of the run id",
    "use_recurrent": "'memory: {}' under 'network_settings' switches memory on",
    "use_curiosity": "curiosity is an entry of 'reward_signals'",
}
"""Keys of ML-Agents before release 1, and their replacements."""


class BehavioralCloningSettings(Section):
    """Supervised steps towards the demonstrated actions, between policy updates."""

    demo_path: Text
    """A .demo file or a folder of them."""

    steps: Count = 0
    """Agent steps over which the cloning fades out; 0 never fades."""

    strength: NonNegative = 1.0
    """Factor of the trainer's initial learning rate for cloning."""

    samples_per_update: Count = 0
    """Demonstrated steps of each pass, sampled again; 0 uses all of them."""

    num_epoch: PositiveCount | None = None
    """Passes after each policy update; null means 3."""

    batch_size: PositiveCount | None = None
    """Steps of one gradient step; null means the trainer's batch_size."""

    def has_faded_out(self, step: int) -> bool:
        """Whether cloning has faded out at this step."""
        return 0 < self.steps <= step


def _defaults_of_type(validated: dict[str, Any]) -> Hyperparameters:
    return HYPERPARAMETERS[validated["trainer_type"]]()


def _mistakes_for_nearest(settings: Mapping[str, Any]) -> list[InitErrorDetails]:
    """Returns the mistakes in hyperparameters, as those of the trainer type with the name nearest to the given one."""
    name, value = settings["trainer_type"], settings.get("hyperparameters")
    near = nearest_choice(name, HYPERPARAMETERS) if isinstance(name, str) else None
    if near is None or value is None or isinstance(value, Hyperparameters):
        return []
    try:
        HYPERPARAMETERS[near].model_validate(value, context=HYPERPARAMETERS)
    except ValidationError as error:
        return [
            error_at(
                problem(f"{plain_message(details)} (checked as '{near}')"),
                ("hyperparameters", *details["loc"]),
                details["input"],
            )
            for details in root_errors(error)
        ]
    return []


def _only_extrinsic() -> dict[str, RewardSignalSettings]:
    return {"extrinsic": ExtrinsicSettings()}


def _written_for_mlagents(plugin: Plugin) -> str:
    return (
        f"'{plugin.name}' is offered by {plugin.source} for ML-Agents' own trainer, whose classes this one does not "
        "have: docs/plugins.md says how to port it"
    )


def _build_reward_signal(name: str, settings: Any) -> RewardSignalSettings:
    try:
        model = reward_signal_settings(name)
    except PluginError as error:
        raise problem(str(error)) from None
    if model is None:
        raise problem(unknown_key_message(name, [*REWARD_SIGNALS, *REWARD_SIGNAL_PLUGINS.offered()]))
    return model.model_validate(settings)


class TrainerSettings(Section):
    """Settings of one behavior's training. Keys, defaults and meaning are those of ML-Agents."""

    trainer_type: str = "ppo"
    """Name of the algorithm."""

    hyperparameters: SerializeAsAny[Hyperparameters] = Field(default_factory=_defaults_of_type)
    """Hyperparameters of the algorithm; trainer_type decides which keys exist."""

    network_settings: NetworkSettings = NetworkSettings()
    """Networks of policy and critic."""

    reward_signals: dict[str, SerializeAsAny[RewardSignalSettings]] = Field(default_factory=_only_extrinsic)
    """Sources of rewards by name. They replace the default: without ``extrinsic`` the task's rewards do not count."""

    init_path: Text | None = None
    """A checkpoint to start from: the path of a file, or a bare name below the folder of the run to initialize from."""

    keep_checkpoints: WholeNumber = 5
    """Checkpoints kept besides the last; 0 or less keeps all."""

    even_checkpoints: Flag = False
    """Whether checkpoint_interval is max_steps / keep_checkpoints, whatever it is given as."""

    max_steps: Count = 500000
    """Agent steps after which training ends."""

    max_episodes: PositiveCount | None = None
    """Episodes of agents after which training ends, where max_steps are not used up before; null: however many.
    Schedules stay on max_steps. Not in ML-Agents."""

    checkpoint_interval: PositiveCount = Field(default=500000, validate_default=True)
    """Agent steps between checkpoints."""

    time_horizon: PositiveCount = 64
    """Steps after which a trajectory is cut, its remainder estimated by the critic."""

    summary_freq: PositiveCount = 50000
    """Agent steps between summaries."""

    threaded: Flag = False
    """Accepted for compatibility with ML-Agents; training needs no thread of its own here."""

    self_play: SelfPlaySettings | None = None
    """Settings of self-play; null for none."""

    behavioral_cloning: BehavioralCloningSettings | None = None
    """Settings of learning from demonstrations; null for none."""

    @classmethod
    def of(cls, hyperparameters: Hyperparameters, **others: Any) -> Self:
        """Makes the settings of the trainer type with these hyperparameters. others: further keys of this section.

        Raises ValueError if no trainer type has such hyperparameters, or if settings contradict each other.
        """
        kind, names = type(hyperparameters), {kind: name for name, kind in HYPERPARAMETERS.items()}
        if kind not in names:
            raise ValueError(f"expected the hyperparameters of a trainer type, got {kind.__name__}")
        return cls(trainer_type=names[kind], hyperparameters=hyperparameters, **others)

    @classmethod
    def unknown_key(cls, key: str, siblings: Mapping[str, type[Section]]) -> str:
        if key in _OLD_KEYS:
            return f"not read any more: {_OLD_KEYS[key]}"
        return super().unknown_key(key, siblings)

    @field_validator("trainer_type", mode="before")
    @classmethod
    def _is_known(cls, value: Any) -> str:
        try:
            if isinstance(value, str) and hyperparameters_of(value) is not None:
                return value
        except PluginError as error:
            raise problem(str(error)) from None
        if isinstance(value, str) and (plugin := MLAGENTS_TRAINERS.offered().get(value)):
            raise problem(_written_for_mlagents(plugin))
        return require_choice("trainer type", value, [*HYPERPARAMETERS, *ALGORITHM_PLUGINS.offered()])

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _read_by_trainer_type(cls, value: Any, info: ValidationInfo) -> Hyperparameters:
        if "trainer_type" not in info.data:
            return (
                Hyperparameters()
            )  # their model is unknown; ``_also_behind_a_mistyped_name`` judges the keys
        trainer_type = info.data["trainer_type"]
        model = HYPERPARAMETERS[trainer_type]
        if isinstance(value, Hyperparameters) and not isinstance(value, model):
            raise problem(f"trainer type '{trainer_type}' needs {model.__name__}, got {type(value).__name__}")
        return model.model_validate(value, context=HYPERPARAMETERS)

    @model_validator(mode="wrap")
    @classmethod
    def _also_behind_a_mistyped_name(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Adds the mistakes in hyperparameters to that of an unknown trainer type; the nearest one judges them."""
        try:
            return handler(data)
        except ValidationError as error:
            unknown = any(details["loc"] == ("trainer_type",) for details in error.errors(include_url=False))
            if not unknown:
                raise
            found = [*nested_errors(error), *_mistakes_for_nearest(data)]
            raise ValidationError.from_exception_data(cls.__name__, found) from None

    @field_validator("reward_signals", mode="before")
    @classmethod
    def _read_by_name(cls, value: Any) -> dict[str, RewardSignalSettings]:
        signals = build_each(value, _build_reward_signal)
        if not signals:
            raise problem(f"expected at least one of {', '.join(REWARD_SIGNALS)}, got an empty mapping")
        return signals

    @field_validator("checkpoint_interval")
    @classmethod
    def _spread_evenly(cls, interval: int, info: ValidationInfo) -> int:
        given: dict[str, Any] = info.data
        if not given.get("even_checkpoints") or "max_steps" not in given or "keep_checkpoints" not in given:
            return interval
        if given["keep_checkpoints"] < 1:
            raise problem(
                f"even_checkpoints needs keep_checkpoints of at least 1, got {given['keep_checkpoints']}"
            )
        even: int = given["max_steps"] // given["keep_checkpoints"]
        return max(1, even)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        contradictions = (
            *self.hyperparameters.contradictions(self.network_settings),
            *self._not_learned(),
        )
        found = [
            error_at(problem(f"expected {expected}, got {got}"), location, got)
            for location, expected, got in contradictions
        ]
        if found:
            raise ValidationError.from_exception_data("section", found)
        return self

    @property
    def acts_greedily(self) -> bool:
        """Whether the policy takes its most likely action instead of drawing one, in training too."""
        return self.network_settings.deterministic and self.hyperparameters.draws_actions

    def remarks(self) -> Iterator[Remark]:
        """Yields settings that are accepted but have no effect or another one."""
        yield from (remark.below("hyperparameters") for remark in self.hyperparameters.remarks())
        yield from (remark.below("network_settings") for remark in self.network_settings.remarks())
        for name, signal in self.reward_signals.items():
            yield from (remark.below("reward_signals", name) for remark in signal.remarks())
        if self.threaded:
            yield Remark(("threaded",), "has no effect: simulators never wait for a trainer thread here")
        if self.network_settings.deterministic and not self.hyperparameters.draws_actions:
            yield Remark(
                ("network_settings", "deterministic"),
                f"has no effect while {self.trainer_type} trains: its policy draws no actions, it explores as its "
                "hyperparameters say",
            )

    def _not_learned(self) -> Iterator[Contradiction]:
        """Yields sections and keys that this trainer type does not support."""
        name, hyper, network = self.trainer_type, self.hyperparameters, self.network_settings
        if network.memory is not None and not hyper.supports_memory:
            without = f"nothing, as {name} does not learn with memory"
            yield Contradiction(("network_settings", "memory"), without, "a memory")
        if list(self.reward_signals) != ["extrinsic"] and not hyper.supports_reward_models:
            alone = f"extrinsic alone, which is all that {name} learns from"
            yield Contradiction(("reward_signals",), alone, ", ".join(self.reward_signals))
        if list(self.reward_signals) != ["extrinsic"] and hyper.relabels_goals:
            alone = "extrinsic alone, as replay of type hindsight recomputes the task's rewards alone"
            yield Contradiction(("reward_signals",), alone, ", ".join(self.reward_signals))
        task = self.reward_signals.get("extrinsic")
        if isinstance(task, ExtrinsicSettings) and task.normalize_rewards and hyper.learns_from_replay:
            unscaled = f"false, as {name} learns from a replay buffer, which outlives any scale of returns"
            yield Contradiction(("reward_signals", "extrinsic", "normalize_rewards"), unscaled, "true")
        if hyper.one_value:
            yield from self._other_gammas()
        if self.behavioral_cloning is not None and not hyper.supports_cloning:
            unseen = "decides from what a whole group sees, which demonstrations do not say"
            why = unseen if hyper.communicates else "does not learn from demonstrations"
            cloned = f"nothing, as {name} {why}"
            yield Contradiction(("behavioral_cloning",), cloned, self.behavioral_cloning.demo_path)
        if network.layer_norm and not hyper.supports_layer_norm:
            plain = f"false, as networks of {name} have no such form"
            yield Contradiction(("network_settings", "layer_norm"), plain, "true")
        if network.encoder is not None and hyper.learns_by_group:
            alone = f"null, as networks of {name} have encoders of a whole group"
            yield Contradiction(("network_settings", "encoder"), alone, network.encoder)
        if network.activation != "swish" and hyper.communicates:
            own = f"nothing, as networks of {name} have their own"
            yield Contradiction(("network_settings", "activation"), own, network.activation)

    def _other_gammas(self) -> Iterator[Contradiction]:
        """Yields signals whose gamma is not that of the one value which is learned of all of them."""
        leading = leading_signal(self.reward_signals)
        gamma = self.reward_signals[leading].gamma
        for name, signal in self.reward_signals.items():
            if signal.gamma != gamma:
                same = f"{gamma} as of {leading}, because {self.trainer_type} learns one value of all signals"
                yield Contradiction(("reward_signals", name, "gamma"), same, signal.gamma)
