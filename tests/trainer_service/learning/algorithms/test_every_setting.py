"""Every setting of every trainer type has an effect: another value changes actions or weights, or a warning says not.

A key that is added is covered by being a field of its model. What it takes to see an effect (another key, a sensor of
another kind) stands in COMPANIONS; what can have none on weights and actions is excepted by name.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from behavior_worlds import flat, observe
from every_trainer import settings_of
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ReplaySettings
from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.config.rewards import CuriositySettings, ExtrinsicSettings, RNDSettings
from trainer_service.config.section import Section
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.records import BehaviorTick
from unity_bridge import specs
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, ObservationSpec, ObservationType
from unity_bridge.steps import StepBatch

GROUP, AGENTS, TICKS = 3, 6, 26
SMALL = {"hidden_units": 8, "num_layers": 1}
CHOICES, NUMBERS = ActionSpec(0, (3,)), ActionSpec(2, ())
MEMORY = {"memory_size": 8, "sequence_length": 4}

ELSEWHERE: Mapping[str, str] = {
    "hyperparameters.save_replay_buffer": "files alone: test_every_trainer",
    "init_path": "the start of a run: test_warm_starts",
    "keep_checkpoints": "files alone",
    "even_checkpoints": "files alone",
    "checkpoint_interval": "files alone",
    "summary_freq": "reports alone",
    "self_play": "needs two sides: test_self_play",
    "behavioral_cloning": "needs a recording: test_cloning",
    "trainer_type": "each is a run of its own",
    **{
        f"reward_signals.{signal}.network_settings.memory": "reading takes it away with a warning: test_legacy"
        for signal in ("extrinsic", "curiosity", "rnd")
    },
    **{
        f"{section}network_settings.{key}": "needs a plugin: test_observation_encoders"
        for section in ("", "reward_signals.extrinsic.", "reward_signals.curiosity.", "reward_signals.rnd.")
        for key in ("encoder", "encoder_kwargs")
    },
    "hyperparameters": "its keys are walked",
    "network_settings": "its keys are walked",
    "reward_signals": "its keys are walked",
    "hyperparameters.replay": "its keys are walked",
    "hyperparameters.replay.kwargs": "needs a plugin: test_replay_buffers",
    **{
        f"hyperparameters.replay.{key}": "needs a recording: test_demonstrated_rows"
        for key in ("demo_path", "demo_share")
    },
    **{
        f"hyperparameters.replay.{key}": "with hindsight, which takes a goal environment: test_hindsight"
        for key in ("n_sampled_goal", "goal_selection_strategy")
    },
}
"""Settings with an effect that cannot be seen here, and why."""

WITHOUT_EFFECT: Mapping[tuple[str, str], str] = {
    (
        name,
        "network_settings.goal_conditioning_type",
    ): "goals are an input like any other; docs/configuration.md says so"
    for name in ("maddpg", "dqn_share", "dqn_consensus", "sic")
}
"""Settings of single trainer types that have no effect, and where users are told."""

COMPANIONS: Mapping[str, Mapping[str, Any]] = {
    "hyperparameters.epsilon": {"hyperparameters.learning_rate": 0.03},
    "hyperparameters.epsilon_schedule": {"hyperparameters.learning_rate": 0.03, "max_steps": 170},
    "hyperparameters.desired_kl": {"hyperparameters.learning_rate_schedule": "adaptive"},
    "hyperparameters.target_kl": {"hyperparameters.num_epoch": 3, "hyperparameters.ratio_clip": 0.2},
    "hyperparameters.optimizer": {"hyperparameters.weight_decay": 0.5},
    "hyperparameters.group_size": {"hyperparameters.share": "none"},
    "hyperparameters.clip_value": {"hyperparameters.epsilon": 1e-3, "hyperparameters.learning_rate": 0.03},
    "hyperparameters.value_loss": {"hyperparameters.huber_delta": 0.01},
    "hyperparameters.agent_ids": {"hyperparameters.share": "full"},
    "hyperparameters.fixed_order": {"hyperparameters.num_epoch": 1},
    "hyperparameters.target_noise_clip": {"hyperparameters.target_noise": 2.0},
    "hyperparameters.exploration_steps": {"hyperparameters.noise_final": 0.5},
    "hyperparameters.exploration_final": {"hyperparameters.exploration_steps": 50},
    "hyperparameters.exploration_unit": {"hyperparameters.exploration_steps": 50},
    "network_settings.goal_conditioning_type": {"hyperparameters.share": "full"},
    "network_settings.keep_scale": {"network_settings.layer_norm": True},
    "network_settings.memory.type": {"network_settings.memory": MEMORY},
    "network_settings.memory.sequence_length": {"network_settings.memory": MEMORY},
    "network_settings.memory.memory_size": {"network_settings.memory": MEMORY},
    "hyperparameters.replay.alpha": {"hyperparameters.replay.type": "prioritized"},
    "hyperparameters.replay.beta": {"hyperparameters.replay.type": "prioritized"},
    "hyperparameters.replay.beta_updates": {"hyperparameters.replay.type": "prioritized"},
    "hyperparameters.reward_signal_steps_per_update": {"reward_signals.curiosity.strength": 0.1},
}
"""What else has to be so, where the trainer type has these keys, for a setting to have an effect."""

VALUES: Mapping[str, Any] = {
    "hyperparameters.batch_size": 18,
    "hyperparameters.buffer_size": 72,
    "hyperparameters.max_grad_norm": 1e-3,
    "hyperparameters.lambd": 0.5,
    "hyperparameters.num_epoch": 2,
    "hyperparameters.optimizer": "adamw",
    "hyperparameters.learning_rate_schedule": "linear",
    "hyperparameters.desired_kl": 1e-9,
    "hyperparameters.target_kl": 1e-9,
    "hyperparameters.beta_schedule": "linear",
    "hyperparameters.epsilon_schedule": "exponential",
    "hyperparameters.epsilon": 1e-3,
    "hyperparameters.beta": 0.5,
    "hyperparameters.group_size": 4,
    "hyperparameters.exploration_final": 0.9,
    "hyperparameters.huber_delta": 1e-3,
    "hyperparameters.log_std_init": 0.0,
    "hyperparameters.critic_learning_rate": 0.1,
    "hyperparameters.ratio_clip": 0.01,
    "hyperparameters.target_update": 2,
    "hyperparameters.exploration_steps": 50,
    "hyperparameters.steps_per_update": 9.0,
    "hyperparameters.reward_signal_steps_per_update": 40.0,
    "hyperparameters.buffer_init_steps": 60,
    "hyperparameters.noise_final": 0.5,
    "hyperparameters.gumbel_temperature": 0.2,
    "hyperparameters.consensus_every": 3,
    "hyperparameters.replay.type": "prioritized",
    "hyperparameters.replay.beta_updates": 3,
    "network_settings.vis_encode_type": "nature_cnn",
    "network_settings.memory": MEMORY,
    "network_settings.memory.sequence_length": 2,
    "network_settings.activation": "tanh",
    "max_steps": 90,
    "max_episodes": 30,
    "time_horizon": 2,
}
"""Values to change a setting to, where any other would not do."""


class World(ShortEpisodes):
    """Short episodes of larger groups, with the sensors that a behavior has: a picture, a goal, the group's state."""

    def __init__(self, spec: BehaviorSpec) -> None:
        more = [sensor for sensor in spec.observation_specs if sensor.name != "seen"]
        super().__init__(spec.action_spec, AGENTS, more)

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        batch = super().rows(rewards, **ends)
        return replace(batch, group_ids=1 + batch.agent_ids // GROUP)


_PICTURE = ObservationSpec("picture", (3, 36, 36), specs.PICTURE)
_GOAL = ObservationSpec("goal", (2,), observation_type=ObservationType.GOAL_SIGNAL)
SENSORS: Mapping[str, ObservationSpec] = {
    "vis_encode_type": _PICTURE,
    "goal_conditioning_type": _GOAL,
    "state": ObservationSpec(GLOBAL_STATE, (2,)),
}
"""Sensors that a setting is about."""
NEEDS_NUMBERS = frozenset({"log_std_init", "exploration_noise", "noise", "noise_final"})


def spec_for(trainer_type: str, key: str) -> BehaviorSpec:
    """What agents see and do where a setting is tried."""
    numbers = trainer_type in ("ddpg", "td3") or (key in NEEDS_NUMBERS and trainer_type != "coma")
    numbers |= trainer_type == "maddpg" and key == "exploration_steps"
    sensors = [ObservationSpec("seen", (SENSOR,)), *([SENSORS[key]] if key in SENSORS else [])]
    return BehaviorSpec(tuple(sensors), NUMBERS if numbers else CHOICES)


def base_of(trainer_type: str) -> dict[str, Any]:
    """Settings of a run that updates a few times within so many ticks."""
    given = settings_of(trainer_type, max_steps=1000, time_horizon=25)
    hyper, model = given["hyperparameters"], HYPERPARAMETERS[trainer_type]
    wanted = {
        "batch_size": 12, "buffer_size": 36, "buffer_init_steps": 30, "steps_per_update": 6.0,
        "learning_rate": 3e-3, "learning_rate_schedule": "constant", "num_epoch": 1 if trainer_type == "coma" else 3,
    }  # fmt: skip
    hyper.clear()
    hyper |= {key: value for key, value in wanted.items() if key in model.model_fields}
    if model.learns_by_group:
        hyper["group_size"] = GROUP
    given["network_settings"] = dict(SMALL)
    return given


def with_value(given: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """A copy of the settings with another value at a dotted path."""
    key, _, rest = dotted.partition(".")
    inner = given.get(key)
    changed = value if not rest else with_value(dict(inner) if isinstance(inner, dict) else {}, rest, value)
    return {**given, key: changed}


def walked() -> Iterator[tuple[str, str]]:
    """Every trainer type with the dotted path of each of its settings."""
    for trainer_type, hyper in HYPERPARAMETERS.items():
        yield from ((trainer_type, key) for key in TrainerSettings.model_fields)
        yield from ((trainer_type, f"hyperparameters.{key}") for key in hyper.model_fields)
        if "replay" in hyper.model_fields:
            yield from (
                (trainer_type, f"hyperparameters.replay.{key}") for key in ReplaySettings.model_fields
            )
        yield from ((trainer_type, f"network_settings.{key}") for key in NetworkSettings.model_fields)
        if hyper.supports_memory:
            yield from (
                (trainer_type, f"network_settings.memory.{key}") for key in MemorySettings.model_fields
            )
        signals: dict[str, type[Section]] = {"extrinsic": ExtrinsicSettings}
        if hyper.supports_reward_models:
            signals |= {"curiosity": CuriositySettings, "rnd": RNDSettings}
        for name, model in signals.items():
            for key in model.model_fields:
                if key != "network_settings":
                    yield trainer_type, f"reward_signals.{name}.{key}"
            yield from (
                (trainer_type, f"reward_signals.{name}.network_settings.{key}")
                for key in NetworkSettings.model_fields
            )


_REPRESENTATIVES = frozenset({"ppo", "mappo", "coma", "sac", "dqn", "td3", "qmix", "maddpg", "dqn_consensus"})


def cases() -> Iterator[Any]:
    """Each setting of each type. What a type shares with all of its kind is tried with the first of a kind in short."""
    for trainer_type, dotted in walked():
        hyper = HYPERPARAMETERS[trainer_type]
        if dotted in ELSEWHERE or (trainer_type, dotted) in WITHOUT_EFFECT or not hyper.learns:
            continue
        key = dotted.rpartition(".")[2]
        own = dotted.startswith("hyperparameters.") and key in vars(hyper).get("__annotations__", {})
        shared = (
            ("ppo", "sac")
            if dotted.startswith(("network_settings.", "reward_signals."))
            else _REPRESENTATIVES
        )
        quick = own or trainer_type in shared
        marks = () if quick else pytest.mark.thorough
        yield pytest.param(trainer_type, dotted, id=f"{trainer_type}-{dotted}", marks=marks)


def values_for(model: type[Section], key: str, current: Any, dotted: str) -> list[Any]:
    """Other values that a field may have."""
    if dotted in VALUES:
        return [VALUES[dotted]]
    if key == "share":  # null is one of these two
        return ["none" if getattr(model, "default_share", "none") == "full" else "full"]
    annotation = model.model_fields[key].annotation
    texts = itertools.chain(*[get_args(each) or (each,) for each in (get_args(annotation) or (annotation,))])
    choices = [text for text in texts if isinstance(text, str) and text != current]
    if isinstance(current, str) and not choices:
        return []  # the only value
    if isinstance(current, bool):
        return [not current]
    if choices:
        return list(choices)
    if isinstance(current, int):
        return [current + 2]
    if isinstance(current, float):
        return [0.5 * current if current else 0.5]
    raise AssertionError(f"which other value than {current!r} may '{dotted}' have? Say so in VALUES")


def model_of(trainer_type: str, dotted: str) -> type[Section]:
    """The section that a setting stands in."""
    *above, _ = dotted.split(".")
    if not above:
        return TrainerSettings
    if above[-1] == "hyperparameters":
        return HYPERPARAMETERS[trainer_type]
    signals = {"extrinsic": ExtrinsicSettings, "curiosity": CuriositySettings, "rnd": RNDSettings}
    sections = {
        "replay": ReplaySettings,
        "network_settings": NetworkSettings,
        "memory": MemorySettings,
        **signals,
    }
    return sections[above[-1]]


def companions_of(trainer_type: str, dotted: str) -> dict[str, Any]:
    """The settings of the run that a change is compared with."""
    given = base_of(trainer_type)
    if dotted.startswith("reward_signals."):
        name = dotted.split(".")[1]
        signals: dict[str, Any] = {"extrinsic": {}}
        if name != "extrinsic":
            signals[name] = {"strength": 0.1, "network_settings": SMALL}
        given["reward_signals"] = signals
    for path, value in COMPANIONS.get(dotted, {}).items():
        section, _, key = path.rpartition(".")
        if section == "hyperparameters" and key not in HYPERPARAMETERS[trainer_type].model_fields:
            continue
        if path.startswith("reward_signals."):
            given["reward_signals"] = {
                "extrinsic": {},
                "curiosity": {"strength": value, "network_settings": SMALL},
            }
        else:
            given = with_value(given, path, value)
    return given


def parsed(given: Mapping[str, Any]) -> TrainerSettings:
    return TrainerSettings.model_validate(given)


@functools.cache
def lived(settings_json: str, spec: BehaviorSpec) -> bytes:
    """All that agents did and all that was learned in a short run, as one text of bytes."""
    behavior = Behavior(
        "Probe", spec, TrainerSettings.model_validate_json(settings_json), Compute(torch.device("cpu"), 1)
    )
    behavior.prepare()
    world, parts = World(spec), []
    batch = world.begin()
    for _ in range(TICKS):
        observe(behavior, BehaviorTick(0, 0, batch))
        if behavior.ready_to_update():
            behavior.update()
        (actions,) = behavior.collector.act()
        parts += [actions.continuous.tobytes(), actions.discrete.tobytes()]
        batch = world.step(actions)
    assert behavior.updates
    learned = {
        name: value
        for name, value in flat(checkpoint_of(behavior).algorithm).items()
        if isinstance(value, torch.Tensor) and "collected" not in name
    }
    parts += [name.encode() + value.contiguous().numpy().tobytes() for name, value in learned.items()]
    return b"".join(parts)


@functools.cache
def takes_json(settings_json: str, spec: BehaviorSpec) -> bool:
    try:
        Behavior(
            "Probe", spec, TrainerSettings.model_validate_json(settings_json), Compute(torch.device("cpu"), 1)
        )
    except UserError:
        return False
    return True


def takes(settings: TrainerSettings, spec: BehaviorSpec) -> bool:
    """Whether a behavior of these sensors and actions can be learned."""
    return takes_json(settings.model_dump_json(), spec)


def is_remarked(settings: TrainerSettings, dotted: str) -> bool:
    return any(".".join(map(str, remark.location)) == dotted for remark in settings.remarks())


@pytest.mark.parametrize(("trainer_type", "dotted"), list(cases()))
def test_it_has_an_effect_or_is_told_to_have_none(trainer_type: str, dotted: str) -> None:
    given, key = companions_of(trainer_type, dotted), dotted.rpartition(".")[2]
    try:
        base = parsed(given)
    except (
        ValueError
    ):  # what it takes to see an effect is refused with this type, and so is the setting by itself
        given = base_of(trainer_type)
        base = parsed(given)
    spec = spec_for(trainer_type, key)
    current = functools.reduce(
        lambda section, name: section[name] if isinstance(section, dict) else getattr(section, name),
        dotted.split("."),
        base,
    )
    others = values_for(model_of(trainer_type, dotted), key, current, dotted)
    silent = []
    for value in others:
        try:
            changed = parsed(with_value(given, dotted, value))
        except ValueError:
            continue  # refused
        if is_remarked(changed, dotted):
            continue
        if not takes(base, spec):
            continue  # refused with the sensors that it is about
        if lived(base.model_dump_json(), spec) == lived(changed.model_dump_json(), spec):
            silent.append(value)
    assert not silent, f"{silent} did nothing instead of {current!r}, and nobody was told"


@pytest.mark.parametrize(
    "trainer_type",
    [name for name, hyper in HYPERPARAMETERS.items() if hyper.learns and not hyper.draws_actions],
)
def test_policies_that_draw_no_actions_explore_nevertheless(trainer_type: str) -> None:
    given, spec = base_of(trainer_type), spec_for(trainer_type, "exploration_noise")
    if "exploration_noise" not in HYPERPARAMETERS[trainer_type].model_fields:
        spec = spec_for(trainer_type, "")
    greedy = parsed(with_value(given, "network_settings.deterministic", True))
    assert is_remarked(greedy, "network_settings.deterministic")
    assert lived(greedy.model_dump_json(), spec) == lived(parsed(given).model_dump_json(), spec)


def test_every_exception_is_a_setting() -> None:
    known = {dotted for _, dotted in walked()}
    assert set(ELSEWHERE) <= known
    assert set(COMPANIONS) <= known
    assert set(VALUES) <= known
