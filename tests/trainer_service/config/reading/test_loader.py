from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_service.config import (
    HYPERPARAMETERS,
    LoadedOptions,
    RunOptions,
    TrainerSettings,
    dump_run_options,
    load_run_options,
    parse_run_options,
)
from trainer_service.errors import ConfigError

Load = Callable[..., LoadedOptions]
Refuse = Callable[..., list[str]]

EVERYTHING = """
default_settings:
  trainer_type: ppo
  init_path: results/old/Ball/checkpoint.safetensors
behaviors:
  Ball:
    hyperparameters: {learning_rate: 3e-4, beta: 1e-3, max_grad_norm: null}
    network_settings: {normalize: yes, vis_encode_type: resnet, memory: {sequence_length: 32}}
    even_checkpoints: true
  Player:
    trainer_type: poca
    self_play: {save_steps: 1000}
    reward_signals:
      gail: {demo_path: a.demo, use_vail: true}
      curiosity: {strength: 0.02, network_settings: {hidden_units: 64}}
  Runner:
    trainer_type: sac
    hyperparameters: {steps_per_update: 10}
    behavioral_cloning: {demo_path: a.demo}
env_settings: {env_path: Build/Ball, env_args: [--agents, 8], num_envs: 2, seed: 7}
engine_settings: {time_scale: 1e1, no_graphics: true}
environment_parameters:
  gravity: 9.81
  mass: {sampler_type: uniform, sampler_parameters: {min_value: 0.5, max_value: 10}}
  wind: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[0, 1], [5, 6]]}}
  height:
    curriculum:
      - name: low
        value: {sampler_type: gaussian, sampler_parameters: {st_dev: 0.1}}
        completion_criteria: {behavior: Ball, measure: progress, threshold: 0.5}
      - {name: high, value: 8}
checkpoint_settings: {run_id: 7, results_dir: out}
torch_settings: {device: cpu}
debug: false
"""


def test_no_file_trains_any_behavior_with_the_built_in_defaults() -> None:
    loaded = load_run_options(None)
    assert loaded.options.behavior_settings("Whatever") == TrainerSettings()
    assert loaded.warnings == ()


def test_all_mistakes_are_reported_with_line_path_and_hint(refuse: Refuse) -> None:
    assert refuse("""
        behaviors:
          Walker:
            trainer_type: ppo
            hyperparameters:
              learning_rat: 1e-3
              tau: 0.01
              learning_rate: -1
            max_steps: lots
            batch_size: 64
            network_settings:
              vis_encode_type: simpl
              memory: {memory_size: 3}
            reward_signals:
              curiosty: {}
              gail: {gamma: 2}
            time_horizon:
        env_setings: {}
        env_settings: {env_args: --agents 8}
        debug: perhaps
    """) == [
        "run.yaml:6: behaviors.Walker.hyperparameters.learning_rat: unknown key (did you mean 'learning_rate'?)",
        "run.yaml:7: behaviors.Walker.hyperparameters.tau: unknown key: 'tau' is a key of "
        + ", ".join(kind for kind, model in HYPERPARAMETERS.items() if "tau" in model.model_fields)
        + ", not of ppo",
        "run.yaml:8: behaviors.Walker.hyperparameters.learning_rate: expected more than 0, got -1",
        "run.yaml:9: behaviors.Walker.max_steps: expected a whole number, got 'lots'",
        "run.yaml:10: behaviors.Walker.batch_size: unknown key (it belongs under 'hyperparameters')",
        "run.yaml:12: behaviors.Walker.network_settings.vis_encode_type: expected a picture encoder, one of "
        "simple, nature_cnn, resnet, match3, fully_connected, got 'simpl' (did you mean 'simple'?)",
        "run.yaml:13: behaviors.Walker.network_settings.memory.memory_size: expected an even number, got 3",
        "run.yaml:15: behaviors.Walker.reward_signals.curiosty: unknown key (did you mean 'curiosity'?)",
        "run.yaml:16: behaviors.Walker.reward_signals.gail.gamma: expected at most 1, got 2",
        "run.yaml:16: behaviors.Walker.reward_signals.gail.demo_path: required, but not given",
        "run.yaml:17: behaviors.Walker.time_horizon: expected a whole number, got nothing",
        "run.yaml:18: env_setings: unknown key (did you mean 'env_settings'?)",
        "run.yaml:19: env_settings.env_args: expected a list, got '--agents 8'",
        "run.yaml:20: debug: expected true or false, got 'perhaps'",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "behaviors: {A: {trainer_type: sac, hyperparameters: {replay: {demo_share: 1}}}}",
            "run.yaml:1: behaviors.A.hyperparameters.replay.demo_share: expected less than 1, got 1",
        ),
        ("nonsense: 1", "run.yaml:1: nonsense: unknown key; expected one of default_settings, behaviors, "),
        (
            "max_steps: 9",
            "run.yaml:1: max_steps: unknown key (did you mean behaviors.NAME.max_steps or default_settings.max_steps?)",
        ),
        ("num_envs: 1", "run.yaml:1: num_envs: unknown key (it belongs under 'env_settings')"),
        ("behaviors: [A]", "run.yaml:1: behaviors: expected a mapping, got a list"),
        ("behaviors: {A: 5}", "run.yaml:1: behaviors.A: expected a mapping, got 5"),
        ("behaviors: {A: {}, A: {}}", "run.yaml:1: behaviors.A: duplicate key, already given on line 1"),
        ("behaviors: {a/b: {}}", "run.yaml:1: behaviors.a/b: behavior name 'a/b' must not contain slashes"),
        ("env_settings: 5", "run.yaml:1: env_settings: expected a mapping, got 5"),
        (
            "env_settings: {base_port: 70000}",
            "run.yaml:1: env_settings.base_port: expected at most 65535, got 70000",
        ),
        (
            "checkpoint_settings: {run_id: ../x}",
            "run.yaml:1: checkpoint_settings.run_id: run id '../x' must be",
        ),
        (
            "behaviors: {A: {trainer_type: pp}}",
            "run.yaml:1: behaviors.A.trainer_type: expected a trainer type, one of",
        ),
        (
            "behaviors: {A: {reward_signals: {}}}",
            "run.yaml:1: behaviors.A.reward_signals: expected at least one of",
        ),
    ],
)
def test_a_mistake_is_named(refuse: Refuse, text: str, message: str) -> None:
    (line,) = refuse(text)
    assert line.startswith(message)


def test_dumped_options_load_equal_without_warnings(load: Load, tmp_path: Path) -> None:
    loaded = load(EVERYTHING)
    assert loaded.warnings == ()
    path = tmp_path / "configuration.yaml"
    path.write_text(dump_run_options(loaded.options), encoding="utf-8")
    again = load_run_options(path)
    assert again == loaded


def test_the_command_line_wins_over_the_file(load: Load) -> None:
    overrides = {
        "env_settings": {"num_envs": 4, "env_path": "sim:basic"},
        "checkpoint_settings": {"run_id": "b"},
        "debug": True,
    }
    text = "behaviors: {A: {}}\nenv_settings: {num_envs: 2, seed: 3}\ncheckpoint_settings:\n"
    options = load(text, overrides).options
    assert (options.env_settings.num_envs, options.env_settings.seed) == (4, 3)
    assert (options.checkpoint_settings.run_id, options.debug) == ("b", True)


def test_mistakes_name_the_command_line_or_the_file(refuse: Refuse) -> None:
    text = "behaviors: {A: {}}\nenv_settings: {num_envs: 0, seed: x}"
    assert refuse(text, {"env_settings": {"num_envs": -1, "env_args": ["a", None]}}) == [
        "command line: env_settings.env_args[1]: expected a text, got nothing",
        "command line: env_settings.num_envs: expected at least 1, got -1",
        "run.yaml:2: env_settings.seed: expected a whole number, got 'x'",
    ]


def test_deterministic_holds_for_listed_and_unlisted_behaviors(load: Load) -> None:
    text = "default_settings: {trainer_type: ppo}\nbehaviors: {A: {network_settings: {num_layers: 1}}, B: }"
    options = load(text, {"deterministic": True}).options
    assert all(options.behavior_settings(name).network_settings.deterministic for name in ("A", "B", "C"))
    assert options.behaviors["A"].network_settings.num_layers == 1


@pytest.mark.parametrize(
    "text",
    [
        "behaviors: {A: {max_steps: 9}, B: {}}",
        "default_settings: {max_steps: 9}\nbehaviors: {A: {max_steps: 8}, B: }",
        "env_settings: {num_envs: 1}",
        "behaviors: {A: , B: }",
    ],
)
def test_steps_of_the_command_line_are_those_of_each_behavior(load: Load, text: str) -> None:
    options = load(text, {"max_steps": 5}).options
    assert [options.behavior_settings(name).max_steps for name in ("A", "B")] == [5, 5]


@pytest.mark.parametrize(
    ("results", "given"), [("results", "results/first"), ("out", "out/first/"), ("out", "first")]
)
def test_a_run_may_be_named_by_its_folder(load: Load, results: str, given: str) -> None:
    saved = load(
        "{}", {"checkpoint_settings": {"run_id": given, "results_dir": results}}
    ).options.checkpoint_settings
    assert (saved.run_id, saved.results_dir) == ("first", results)


@pytest.mark.parametrize(
    ("on_file", "on_command_line", "winner"),
    [
        ({"resume": True, "initialize_from": "b"}, {}, "resume"),
        ({"resume": True}, {"initialize_from": "b"}, "initialize_from"),
        ({"initialize_from": "b"}, {"resume": True}, "resume"),
        ({}, {"resume": True, "initialize_from": "b"}, "resume"),
    ],
)
def test_a_run_either_resumes_or_starts_from_another(
    load: Load, on_file: dict[str, Any], on_command_line: dict[str, Any], winner: str
) -> None:
    text = yaml.safe_dump({"behaviors": {"A": {}}, "checkpoint_settings": on_file})
    loaded = load(text, {"checkpoint_settings": on_command_line})
    chosen = loaded.options.checkpoint_settings
    assert (chosen.resume, chosen.initialize_from) == ((True, None) if winner == "resume" else (False, "b"))
    (warning,) = loaded.warnings
    assert "both resume and initialize_from='b' are set" in warning


def test_a_behavior_without_settings_is_refused_by_name(load: Load) -> None:
    options = load("behaviors: {Walker: {}, Ball: {}}").options
    with pytest.raises(ConfigError) as caught:
        options.behavior_settings("Waker")
    assert str(caught.value) == (
        "The behavior name 'Waker' has not been specified in the trainer configuration, which lists 'Walker', "
        "'Ball' (is 'Walker' meant?). Please add an entry for 'Waker' under 'behaviors', or set 'default_settings'."
    )


def test_empty_sections_are_their_defaults(load: Load) -> None:
    options = load("""
        behaviors:
          A:
            trainer_type: ppo
            hyperparameters:
            network_settings:
            reward_signals: {extrinsic: }
          B:
        env_settings:
        engine_settings:
        checkpoint_settings:
        torch_settings:
        environment_parameters:
        default_settings:
    """).options
    assert options == RunOptions(behaviors={"A": TrainerSettings(), "B": TrainerSettings()})


def test_a_mapping_is_left_unchanged_and_named_by_its_label() -> None:
    values = {"behaviors": {"A": {"framework": "pytorch"}}}
    (warning,) = parse_run_options(values, label="my options").warnings
    assert warning.startswith("my options: behaviors.A.framework: deprecated")
    assert values == {"behaviors": {"A": {"framework": "pytorch"}}}
    with pytest.raises(ConfigError, match=r"configuration: debgu: unknown key \(did you mean 'debug'\?\)"):
        parse_run_options({"debgu": True})
