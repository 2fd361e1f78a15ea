from __future__ import annotations

from collections.abc import Callable

import pytest

from trainer_service.config import LoadedOptions, without_updates

Load = Callable[..., LoadedOptions]


@pytest.mark.parametrize(
    ("behavior", "advice"),
    [
        ("threaded: true", "threaded: has no effect"),
        (
            "trainer_type: ppo, hyperparameters: {buffer_size: 10}",
            "hyperparameters.batch_size: 1024 is more than the buffer_size of 10",
        ),
        (
            "self_play: {play_against_latest_model_ratio: 2}",
            "self_play.play_against_latest_model_ratio: is a probability",
        ),
        (
            "hyperparameters: {beta: 0.1}",
            "hyperparameters: no trainer_type is given, so these are read as ppo's",
        ),
        (
            "trainer_type: coma, hyperparameters: {epsilon: 0.1}",
            "hyperparameters.epsilon: has no effect: coma clips by ratio_clip",
        ),
        (
            "trainer_type: happo, hyperparameters: {share: full}",
            "hyperparameters.share: full: agents that share an actor change each other's policy",
        ),
        (
            "trainer_type: dqn, hyperparameters: {replay: {alpha: 0.9}}",
            "hyperparameters.replay.alpha: has no effect without type: prioritized",
        ),
        (
            "trainer_type: sac, hyperparameters: {replay: {type: prioritized, n_sampled_goal: 8}}",
            "hyperparameters.replay.n_sampled_goal: has no effect without type: hindsight",
        ),
        (
            "trainer_type: sac, hyperparameters: {replay: {demo_share: 0.3}}",
            "hyperparameters.replay.demo_share: has no effect without demo_path",
        ),
        (
            "trainer_type: sac, hyperparameters: {replay: {kwargs: {a: 1}}}",
            "hyperparameters.replay.kwargs: has no effect with type: uniform",
        ),
        (
            "trainer_type: dqn, hyperparameters: {tau: 0.5, target_update: 100}",
            "hyperparameters.tau: has no effect with target_update",
        ),
        (
            "trainer_type: td3, hyperparameters: {exploration_steps: 100}",
            "hyperparameters.exploration_steps: has no effect without noise_final",
        ),
        (
            "trainer_type: random, hyperparameters: {batch_size: 2}",
            "hyperparameters.batch_size: has no effect: random actions learn nothing",
        ),
        (
            "trainer_type: td3, network_settings: {deterministic: true}",
            "network_settings.deterministic: has no effect while td3 trains",
        ),
        (
            "network_settings: {keep_scale: false}",
            "network_settings.keep_scale: has no effect without layer_norm",
        ),
        (
            "reward_signals: {rnd: {network_settings: {deterministic: true}}}",
            "reward_signals.rnd.network_settings.deterministic: has no effect",
        ),
    ],
)
def test_legal_but_odd_settings_cause_a_warning(load: Load, behavior: str, advice: str) -> None:
    (warning,) = load(f"behaviors: {{A: {{{behavior}}}}}").warnings
    assert f":1: behaviors.A.{advice}" in warning


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("debug: true", "neither 'behaviors' nor 'default_settings'"),
        (
            "behaviors: {A: {}}\ncheckpoint_settings: {load_model: true}",
            "2: checkpoint_settings.load_model: the",
        ),
        (
            "behaviors: {A: {}}\ncheckpoint_settings: {train_model: true}",
            "2: checkpoint_settings.train_model: the",
        ),
    ],
)
def test_other_sections_cause_warnings_too(load: Load, text: str, advice: str) -> None:
    (warning,) = load(text).warnings
    assert advice in warning


@pytest.mark.parametrize(
    ("behavior", "key", "steps"),
    [
        ("trainer_type: ppo, max_steps: 500", "buffer_size", 10240),
        ("trainer_type: mappo, max_steps: 500, hyperparameters: {buffer_size: 501}", "buffer_size", 501),
        (
            "trainer_type: sac, max_steps: 500, hyperparameters: {buffer_init_steps: 501}",
            "buffer_init_steps",
            502,
        ),
        ("trainer_type: dqn, max_steps: 127, hyperparameters: {buffer_init_steps: 5}", "batch_size", 129),
        (
            "trainer_type: qmix, max_steps: 500, hyperparameters: {batch_size: 200, group_size: 3}",
            "batch_size",
            601,
        ),
    ],
)
@pytest.mark.parametrize("section", ["default_settings", "behaviors.A"])
def test_a_run_that_ends_before_its_first_update_is_named(
    load: Load, section: str, behavior: str, key: str, steps: int
) -> None:
    text = f"default_settings: {{{behavior}}}" if section[0] == "d" else f"behaviors: {{A: {{{behavior}}}}}"
    (warning,) = without_updates(load(text).options)
    assert warning.startswith(f"{section}.max_steps: ")
    assert f"which needs {steps} agent steps (hyperparameters.{key})" in warning
    assert warning.endswith(f"Set max_steps to {steps} or more, or {key} to a smaller number")


@pytest.mark.parametrize(
    "text",
    [
        "behaviors: {A: {max_steps: 10240}}",
        "behaviors: {A: {max_steps: 0}}",
        "behaviors: {A: {trainer_type: sac, max_steps: 129}}",
        "behaviors: {A: {trainer_type: random, max_steps: 1}}",
        "behaviors: {A: {max_steps: 5}}\ncheckpoint_settings: {inference: true}",
        "behaviors: {A: {max_steps: 20000}}\ndefault_settings: {max_steps: 5}",
    ],
)
def test_a_run_that_updates_or_only_acts_is_not_named(load: Load, text: str) -> None:
    assert without_updates(load(text).options) == []


def test_an_ordinary_configuration_draws_no_advice(load: Load) -> None:
    behavior = "{trainer_type: coma, hyperparameters: {epsilon: 0.2}, threaded: false}"
    text = f"behaviors: {{A: {behavior}}}\ncheckpoint_settings: {{load_model: false}}"
    assert load(text).warnings == ()
