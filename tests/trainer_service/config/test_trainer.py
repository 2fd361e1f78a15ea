from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from trainer_service.config import (
    HYPERPARAMETERS,
    LoadedOptions,
    MemorySettings,
    SACSettings,
    SelfPlaySettings,
    TrainerSettings,
)
from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters

Load = Callable[..., LoadedOptions]
Refuse = Callable[..., list[str]]


def test_an_empty_memory_is_a_memory_with_defaults(load: Load) -> None:
    settings = load("behaviors: {A: {network_settings: {memory: {}}}}").options.behaviors["A"]
    assert settings.network_settings.memory == MemorySettings(sequence_length=64, memory_size=128)


def test_teams_change_every_five_snapshots_by_default() -> None:
    assert SelfPlaySettings(save_steps=1000).team_change == 5000
    assert SelfPlaySettings(save_steps=1000, team_change=7).team_change == 7


def test_reward_signals_of_sac_update_as_often_as_the_policy() -> None:
    assert SACSettings(steps_per_update=10).reward_signal_steps_per_update == 10
    assert (
        SACSettings(steps_per_update=10, reward_signal_steps_per_update=2).reward_signal_steps_per_update == 2
    )


def test_a_memory_sequence_fits_into_a_batch(refuse: Refuse) -> None:
    assert refuse("""
        behaviors:
          A:
            trainer_type: sac
            hyperparameters: {batch_size: 32}
            network_settings:
              memory:
                sequence_length: 64
    """) == [
        "run.yaml:8: behaviors.A.network_settings.memory.sequence_length: "
        "expected at most the batch_size of 32, got 64"
    ]


def test_a_minibatch_on_policy_has_a_sequence_at_least() -> None:
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 32},
            "network_settings": {"memory": {"sequence_length": 64}},
        }
    )
    assert settings.network_settings.memory is not None


REPLAYERS = [name for name, model in HYPERPARAMETERS.items() if issubclass(model, OffPolicyHyperparameters)]


def of(trainer_type: str, **sections: str) -> str:
    """A behavior of a trainer type, in one line of YAML."""
    return (
        f"{{trainer_type: {trainer_type}, {', '.join(f'{key}: {text}' for key, text in sections.items())}}}"
    )


REFUSED = [
    (
        of("ppo", network_settings="{goal_conditioning_type: 2001-01-01}"),
        "network_settings.goal_conditioning_type: expected 'hyper' or 'none', got '2001-01-01'",
    ),
    (
        "{even_checkpoints: true, keep_checkpoints: 0}",
        "checkpoint_interval: even_checkpoints needs keep_checkpoints of at least 1, got 0",
    ),
    ("{hyperparameters: {log_std_init: 2.5}}", "hyperparameters.log_std_init: expected at most 2, got 2.5"),
    (
        "{hyperparameters: {log_std_init: -21}}",
        "hyperparameters.log_std_init: expected at least -20, got -21",
    ),
    (
        "{hyperparameters: {log_std_init: .nan}}",
        "hyperparameters.log_std_init: expected a finite number, got nan",
    ),
    *(
        (
            of(name, reward_signals="{rnd: {gamma: 0.9}, extrinsic: {gamma: 0.9}, curiosity: {}}"),
            "reward_signals.curiosity.gamma: expected 0.9 as of extrinsic, because "
            f"{name} learns one value of all signals, got 0.99",
        )
        for name in REPLAYERS
    ),
    (
        of("vdn", reward_signals="{rnd: {gamma: 0.5}, curiosity: {}}"),
        "reward_signals.curiosity.gamma: expected 0.5 as of rnd, because vdn learns one value of all signals, got 0.99",
    ),
    (
        of("random", reward_signals="{rnd: {strength: 1}}"),
        "reward_signals: expected extrinsic alone, which is all that random learns from, got rnd",
    ),
    *(
        (
            of(name, network_settings="{layer_norm: true}"),
            f"network_settings.layer_norm: expected false, as networks of {name} have no such form, got true",
        )
        for name in ("sac", "dqn_share", "dqn_consensus", "sic")
    ),
    *(
        (
            of(name, network_settings="{activation: tanh}"),
            f"network_settings.activation: expected nothing, as networks of {name} have their own, got tanh",
        )
        for name in ("dqn_share", "dqn_consensus", "sic")
    ),
    (
        "{network_settings: {activation: gelu}}",
        "network_settings.activation: expected 'swish', 'relu' or 'tanh', got 'gelu'...",
    ),
    *(
        (
            f"{{{above}network_settings: {{layer_norm: true, activation: tanh}}{closed}}}",
            f"{path}network_settings.layer_norm: expected false beside activation: tanh, as it has ReLU, got true",
        )
        for above, closed, path in (
            ("", "", ""),
            ("reward_signals: {gail: {demo_path: some.demo, ", "}}", "reward_signals.gail."),
        )
    ),
    (
        of("happo", hyperparameters="{advantage_estimates: every_epoch}"),
        "hyperparameters.advantage_estimates: expected 'once', as each agent learns from what those before it have "
        "become, got 'every_epoch'",
    ),
    *(
        (
            of(name, hyperparameters="{reward_mode: individual}"),
            "hyperparameters.reward_mode: expected 'team_sum', got 'individual'",
        )
        for name in ("vdn", "qmix")
    ),
    (
        of("coma", hyperparameters="{num_epoch: 3}"),
        "hyperparameters.num_epoch: expected 1, because coma learns from a rollout once unless there is a ratio_clip, "
        "got 3",
    ),
    (
        of("sic", behavioral_cloning="{demo_path: a.demo}"),
        "behavioral_cloning: expected nothing, as sic decides from what a whole group sees, which demonstrations do "
        "not say, got a.demo",
    ),
    (of("MAPPO"), "... got 'MAPPO' (did you mean 'mappo'?)"),
    (of("zzzz", hyperparameters="{batch_size: 0}"), "trainer_type: expected a trainer type..."),
    (
        of("sac", hyperparameters="{beta: 1}"),
        "...'beta' is a key of ppo, mappo, happo, poca, coma, not of sac...",
    ),
    (of("poca", hyperparameters="{shared_critic: 1}"), "...'shared_critic' is a key of ppo, not of poca..."),
    *(
        (
            of(name, reward_signals="{extrinsic: {normalize_rewards: true}}"),
            f"reward_signals.extrinsic.normalize_rewards: expected false, as {name} learns from a replay buffer, which "
            "outlives any scale of returns, got true",
        )
        for name in ("sac", "dqn", "qmix")
    ),
    (
        of(
            "sac",
            hyperparameters="{batch_size: 64, buffer_size: 50}",
            network_settings="{memory: {sequence_length: 64}}",
        ),
        "hyperparameters.buffer_size: expected at least the 64 steps of a sequence (memory.sequence_length), got 50",
    ),
    *(
        (f"{{self_play: {{opponents: {written}}}}}", f"self_play.opponents{complaint}")
        for written, complaint in (
            ("[]", ": expected at least one player, got an empty list..."),
            ("[random, random]", ": 'random' stands there twice..."),
            ("random", ": expected a list of players, or a mapping from players to weights, got 'random'..."),
            ("[7]", ": expected the name of a player, got 7..."),
            (
                "[a/..]",
                ": player 'a/..': expected a run, RUN@STEP, RUN@best, FILE.safetensors, random or expert; a run id...",
            ),
            ("{random: 0}", ".random: ..."),
        )
    ),
]
"""Behaviors that nobody could learn by, and what is said of them: three dots stand for any words."""


@pytest.mark.parametrize(("behavior", "complaint"), REFUSED)
def test_a_behavior_that_cannot_be_is_refused_in_one_line(
    refuse: Refuse, behavior: str, complaint: str
) -> None:
    (line,) = refuse(f"behaviors: {{A: {behavior}}}")
    said = line.removeprefix("run.yaml:1: behaviors.A.")
    assert said != line
    pattern = ".*".join(re.escape(words) for words in complaint.split("..."))
    assert re.fullmatch(pattern, said)


ACCEPTED = [
    of("coma", hyperparameters="{num_epoch: 3, ratio_clip: 0.2}"),
    of(
        "sac",
        hyperparameters="{batch_size: 64, buffer_size: 64}",
        network_settings="{memory: {sequence_length: 64}}",
    ),
    of("dqn", reward_signals="{rnd: {gamma: 0.5}, curiosity: {gamma: 0.5}}"),
    *(
        of(name, hyperparameters="{share: full, agent_ids: false}", behavioral_cloning="{demo_path: a.demo}")
        for name in ("happo", "coma")
    ),
]


@pytest.mark.parametrize("behavior", ACCEPTED)
def test_a_behavior_at_the_edge_of_that_is_accepted(load: Load, behavior: str) -> None:
    load(f"behaviors: {{A: {behavior}}}")


def test_unsupported_sections_are_refused_with_their_line(refuse: Refuse) -> None:
    assert refuse("""
        behaviors:
          A:
            trainer_type: random
            network_settings:
              memory: {}
            behavioral_cloning: {demo_path: a.demo}
            reward_signals:
              extrinsic: {}
              curiosity: {}
    """) == [
        "run.yaml:6: behaviors.A.network_settings.memory: expected nothing, as random does not learn "
        "with memory, got a memory",
        "run.yaml:7: behaviors.A.behavioral_cloning: expected nothing, as random does not learn from "
        "demonstrations, got a.demo",
        "run.yaml:8: behaviors.A.reward_signals: expected extrinsic alone, which is all that random "
        "learns from, got extrinsic, curiosity",
    ]


@pytest.mark.parametrize(
    ("written", "weights"),
    [
        ("[self, random]", {"self": 1.0, "random": 1.0}),
        ("{expert: 2, old@120000: 0.5}", {"expert": 2.0, "old@120000": 0.5}),
    ],
)
def test_opponents_are_a_list_or_weights(load: Load, written: str, weights: dict[str, float]) -> None:
    loaded = load(f"behaviors: {{A: {{self_play: {{opponents: {written}}}}}}}")
    rules = loaded.options.behaviors["A"].self_play
    assert rules is not None
    assert rules.opponents == weights
    assert rules.has_league
