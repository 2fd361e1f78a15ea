from __future__ import annotations

from collections.abc import Callable

import pytest

from trainer_service.config import LoadedOptions
from trainer_service.config.rewards import CuriositySettings
from trainer_service.errors import ConfigError

Load = Callable[..., LoadedOptions]


def only_warning(loaded: LoadedOptions) -> str:
    (warning,) = loaded.warnings
    return warning.split("run.yaml:")[1]


@pytest.mark.parametrize("key", ["framework", "output_path"])
def test_obsolete_keys_are_ignored_with_a_warning(load: Load, key: str) -> None:
    assert f"1: behaviors.A.{key}: " in only_warning(load(f"behaviors: {{A: {{{key}: x}}}}"))


def test_an_old_key_of_sac_is_ignored_with_a_warning(load: Load) -> None:
    loaded = load("behaviors: {A: {trainer_type: sac, hyperparameters: {reward_signal_num_update: 4}}}")
    assert "replaced by reward_signal_steps_per_update" in only_warning(loaded)


def test_conditioning_type_is_read_as_goal_conditioning_type(load: Load) -> None:
    loaded = load("behaviors: {A: {network_settings: {conditioning_type: none}}}")
    assert loaded.options.behaviors["A"].network_settings.goal_conditioning_type == "none"
    assert "read as goal_conditioning_type" in only_warning(loaded)


def test_encoding_size_becomes_hidden_units_of_the_signals_network(load: Load) -> None:
    loaded = load("behaviors: {A: {reward_signals: {curiosity: {encoding_size: 64}}}}")
    signal = loaded.options.behaviors["A"].reward_signals["curiosity"]
    assert isinstance(signal, CuriositySettings)
    assert signal.network_settings.hidden_units == 64
    assert "read as network_settings.hidden_units" in only_warning(loaded)


def test_memory_of_a_signals_network_is_ignored_with_a_warning(load: Load) -> None:
    loaded = load("behaviors: {A: {reward_signals: {rnd: {network_settings: {memory: {}}}}}}")
    assert loaded.options.behaviors["A"].reward_signals["rnd"].network_settings.memory is None
    assert "networks of reward signals have no memory" in only_warning(loaded)


def test_criteria_of_the_last_lesson_are_ignored_with_a_warning(load: Load) -> None:
    loaded = load("""
        behaviors: {A: {}}
        environment_parameters:
          p:
            curriculum:
            - {name: only, value: 1, completion_criteria: {behavior: A}}
    """)
    assert only_warning(loaded).startswith(
        "6: environment_parameters.p.curriculum[0].completion_criteria: ignored"
    )


def test_lessons_under_their_names_are_read_as_lessons_with_names(load: Load) -> None:
    text = """
behaviors: {A: {}}
environment_parameters:
  height:
    curriculum:
      - Low:
          value: 1.5
          completion_criteria: {behavior: A, threshold: 0.1, measure: progress}
      - High:
          value: 4
"""
    loaded = load(text)
    lessons = (loaded.options.environment_parameters or {})["height"].curriculum
    assert [(lesson.name, lesson.value) for lesson in lessons] == [("Low", 1.5), ("High", 4.0)]
    assert [warning.split("run.yaml:")[1] for warning in loaded.warnings] == [
        f"{line}: environment_parameters.height.curriculum[{i}]: an old spelling, "
        f"read as '- name: {name}' with its keys beside it"
        for i, (line, name) in enumerate([(6, "Low"), (9, "High")])
    ]


@pytest.mark.parametrize(
    ("text", "path", "remedy"),
    [
        ("curriculum: {A: {}}", "curriculum", "'environment_parameters'"),
        ("parameter_randomization: {}", "parameter_randomization", "'environment_parameters'"),
        ("default: {trainer: ppo}", "default", "'default_settings'"),
        ("Walker: {batch_size: 64}", "Walker", "A behavior stands under 'behaviors'"),
        ("behaviors: {A: {trainer: ppo}}", "behaviors.A.trainer", "trainer_type"),
        ("behaviors: {A: {summary_path: x}}", "behaviors.A.summary_path", "run id"),
        ("behaviors: {A: {use_recurrent: true}}", "behaviors.A.use_recurrent", "'memory: {}'"),
        (
            "behaviors: {A: {memory_size: 64}}",
            "behaviors.A.memory_size",
            "belongs under 'network_settings.memory'",
        ),
        (
            "environment_parameters: {mass: {sampler-type: uniform, min_value: 1}}",
            "environment_parameters.mass",
            "{sampler_type: …, sampler_parameters: {…}}",
        ),
    ],
)
def test_layouts_of_old_versions_are_answered_with_todays(
    load: Load, text: str, path: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    (message,) = caught.value.problems
    assert f"run.yaml:1: {path}: " in message
    assert remedy in message
