from __future__ import annotations

from collections.abc import Callable

from trainer_service.config import LoadedOptions, PPOSettings, SACSettings
from trainer_service.config.reading.merge import merged

Load = Callable[..., LoadedOptions]
Refuse = Callable[..., list[str]]


def test_mappings_merge_and_everything_else_replaces() -> None:
    base = {"a": {"b": 1, "c": [1, 2]}, "d": {"e": 1}}
    over = {"a": {"c": [3]}, "d": None, "f": 2}
    assert merged(base, over) == {"a": {"b": 1, "c": [3]}, "d": None, "f": 2}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": {"e": 1}}


def test_a_behavior_is_laid_on_the_default_settings(load: Load) -> None:
    options = load("""
        default_settings:
          hyperparameters: {batch_size: 16, buffer_size: 120}
          trainer_type: ppo
          network_settings: {hidden_units: 256, memory: {memory_size: 64, sequence_length: 8}}
          max_steps: 5e6
        behaviors:
          A:
            hyperparameters: {batch_size: 32}
            network_settings: {memory: null}
          B:
    """).options
    a, b = options.behaviors["A"], options.behaviors["B"]
    assert (a.hyperparameters.batch_size, a.hyperparameters.buffer_size) == (32, 120)
    assert (a.network_settings.hidden_units, a.network_settings.memory) == (256, None)
    assert a.max_steps == 5_000_000
    assert b == options.default_settings


def test_another_trainer_type_inherits_only_hyperparameters_that_it_has(load: Load) -> None:
    options = load("""
        default_settings:
          trainer_type: ppo
          hyperparameters: {batch_size: 16, beta: 0.1, learning_rate_schedule: linear}
        behaviors:
          A: {trainer_type: sac, hyperparameters: {tau: 0.1}}
    """).options
    tuning = options.behaviors["A"].hyperparameters
    assert isinstance(tuning, SACSettings)
    assert (tuning.batch_size, tuning.tau, tuning.learning_rate_schedule) == (16, 0.1, "linear")
    assert tuning.buffer_size == SACSettings().buffer_size


def test_schedules_follow_the_learning_rates_schedule_unless_written(load: Load) -> None:
    options = load("""
        default_settings:
          trainer_type: ppo
          hyperparameters: {epsilon_schedule: linear}
        behaviors:
          A: {hyperparameters: {learning_rate_schedule: constant}}
          B: {}
    """).options
    a, b = (options.behaviors[name].hyperparameters for name in "AB")
    assert isinstance(a, PPOSettings)
    assert isinstance(b, PPOSettings)
    assert (a.beta_schedule, a.epsilon_schedule) == ("constant", "linear")
    assert (b.learning_rate_schedule, b.beta_schedule) == ("linear", "linear")


def test_reward_signals_are_inherited_and_added_to_but_never_removed(load: Load) -> None:
    options = load("""
        default_settings: {trainer_type: ppo}
        behaviors:
          A: {reward_signals: {rnd: {strength: 0.01}}}
    """).options
    assert list(options.behaviors["A"].reward_signals) == ["extrinsic", "rnd"]


def test_a_mistake_in_default_settings_is_reported_once(refuse: Refuse) -> None:
    assert refuse("""
        default_settings:
          max_stepz: 5
          summary_freq: often
        behaviors: {A: {}, B: {}}
    """) == [
        "run.yaml:3: default_settings.max_stepz: unknown key (did you mean 'max_steps'?)",
        "run.yaml:4: default_settings.summary_freq: expected a whole number, got 'often'",
    ]


def test_an_unsuitable_inherited_value_names_its_source_and_behavior(refuse: Refuse) -> None:
    assert refuse("""
        default_settings:
          trainer_type: ppo
          network_settings: {hidden_units: 30}
        behaviors:
          A: {trainer_type: poca}
    """) == [
        "run.yaml:4: default_settings.network_settings.hidden_units: expected a multiple of 4, which poca's "
        "attention heads share, got 30 (inherited by behavior 'A')"
    ]
