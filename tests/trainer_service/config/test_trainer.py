from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from trainer_service.config import (
    HYPERPARAMETERS,
    LoadedOptions,
    MemorySettings,
    POCASettings,
    PPOSettings,
    SACSettings,
    SelfPlaySettings,
    TrainerSettings,
)
from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters
from trainer_service.config.rewards import REWARD_SIGNALS

Load = Callable[..., LoadedOptions]
Refuse = Callable[..., list[str]]

ON_POLICY = {
    "batch_size": 1024,
    "buffer_size": 10240,
    "learning_rate": 3e-4,
    "learning_rate_schedule": "linear",
    "desired_kl": None,
    "target_kl": None,
    "max_grad_norm": 0.5,
    "weight_decay": 0.0,
    "optimizer": "adam",
    "beta": 5e-3,
    "epsilon": 0.2,
    "lambd": 0.95,
    "num_epoch": 3,
    "log_std_init": None,
    "beta_schedule": "linear",
    "epsilon_schedule": "linear",
}


@pytest.mark.parametrize(
    ("trainer_type", "defaults"),
    [
        ("ppo", {**ON_POLICY, "shared_critic": False}),
        ("poca", {**ON_POLICY, "group_size": None, "share": None, "agent_ids": False}),
        (
            "sac",
            {
                "batch_size": 128,
                "buffer_size": 50000,
                "learning_rate": 3e-4,
                "learning_rate_schedule": "constant",
                "max_grad_norm": None,
                "weight_decay": 0.0,
                "optimizer": "adam",
                "buffer_init_steps": 0,
                "init_entcoef": 1.0,
                "critic_norm": "none",
                "policy_delay": 1,
                "save_replay_buffer": False,
                "tau": 0.005,
                "steps_per_update": 1.0,
                "reward_signal_steps_per_update": 1.0,
                "replay": {
                    "type": "uniform",
                    "alpha": 0.6,
                    "beta": 0.4,
                    "beta_updates": 5000,
                    "n_sampled_goal": 4,
                    "goal_selection_strategy": "future",
                    "kwargs": None,
                    "demo_path": None,
                    "demo_share": 0.5,
                },
            },
        ),
    ],
)
def test_hyperparameters_have_ml_agents_defaults(trainer_type: str, defaults: dict[str, Any]) -> None:
    assert TrainerSettings(trainer_type=trainer_type).hyperparameters.model_dump() == defaults


def test_a_behavior_has_ml_agents_defaults() -> None:
    dumped = TrainerSettings().model_dump(exclude={"hyperparameters"})
    assert dumped == {
        "trainer_type": "ppo",
        "network_settings": {
            "normalize": False,
            "hidden_units": 128,
            "num_layers": 2,
            "activation": "swish",
            "layer_norm": False,
            "keep_scale": True,
            "vis_encode_type": "simple",
            "encoder": None,
            "encoder_kwargs": None,
            "goal_conditioning_type": "hyper",
            "deterministic": False,
            "memory": None,
        },
        "reward_signals": {
            "extrinsic": {
                "gamma": 0.99,
                "strength": 1.0,
                "normalize_rewards": False,
                "network_settings": TrainerSettings().network_settings.model_dump(),
            }
        },
        "init_path": None,
        "keep_checkpoints": 5,
        "even_checkpoints": False,
        "max_steps": 500000,
        "max_episodes": None,
        "checkpoint_interval": 500000,
        "time_horizon": 64,
        "summary_freq": 50000,
        "threaded": False,
        "self_play": None,
        "behavioral_cloning": None,
    }


def test_a_behavior_without_trainer_type_is_ppo() -> None:
    assert isinstance(TrainerSettings().hyperparameters, PPOSettings)


def test_signals_have_ml_agents_learning_rates() -> None:
    rates = {
        name: model.model_fields["learning_rate"].default
        for name, model in REWARD_SIGNALS.items()
        if name != "extrinsic"
    }
    assert rates == {"curiosity": 3e-4, "gail": 3e-4, "rnd": 1e-4}


def test_a_choice_that_is_no_text_gets_no_hint(refuse: Refuse) -> None:
    (line,) = refuse("behaviors: {A: {network_settings: {goal_conditioning_type: 2001-01-01}}}")
    assert line.endswith("expected 'hyper' or 'none', got '2001-01-01'")


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


@pytest.mark.parametrize(("keep", "interval"), [(5, 200), (1, 1000), (5000, 1)])
def test_even_checkpoints_divide_the_run(keep: int, interval: int) -> None:
    settings = TrainerSettings(
        max_steps=1000, keep_checkpoints=keep, even_checkpoints=True, checkpoint_interval=77
    )
    assert settings.checkpoint_interval == interval


def test_even_checkpoints_need_a_number_of_checkpoints(refuse: Refuse) -> None:
    assert refuse("behaviors: {A: {even_checkpoints: true, keep_checkpoints: 0}}") == [
        "run.yaml:1: behaviors.A.checkpoint_interval: even_checkpoints needs keep_checkpoints of at least 1, got 0"
    ]


def test_a_memory_sequence_fits_into_a_batch(refuse: Refuse) -> None:
    assert refuse("""
        behaviors:
          A:
            trainer_type: ppo
            hyperparameters: {batch_size: 32}
            network_settings:
              memory:
                sequence_length: 64
    """) == [
        "run.yaml:8: behaviors.A.network_settings.memory.sequence_length: "
        "expected at most the batch_size of 32, got 64"
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2.5", "expected at most 2, got 2.5"),
        ("-21", "expected at least -20, got -21"),
        (".nan", "expected a finite number, got nan"),
    ],
)
def test_the_first_deviation_is_neither_nothing_nor_everything(
    refuse: Refuse, value: str, message: str
) -> None:
    (line,) = refuse(f"behaviors: {{A: {{hyperparameters: {{log_std_init: {value}}}}}}}")
    assert line == f"run.yaml:1: behaviors.A.hyperparameters.log_std_init: {message}"


REPLAYERS = [name for name, model in HYPERPARAMETERS.items() if issubclass(model, OffPolicyHyperparameters)]


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


@pytest.mark.parametrize("trainer_type", REPLAYERS)
def test_one_value_of_several_signals_has_one_gamma(refuse: Refuse, trainer_type: str) -> None:
    assert refuse(f"""
        behaviors:
          A:
            trainer_type: {trainer_type}
            reward_signals:
              rnd: {{gamma: 0.9}}
              extrinsic: {{gamma: 0.9}}
              curiosity: {{}}
    """) == [
        f"run.yaml:8: behaviors.A.reward_signals.curiosity.gamma: expected 0.9 as of extrinsic, because {trainer_type} "
        "learns one value of all signals, got 0.99",
    ]


def test_without_the_tasks_rewards_the_first_signals_gamma_counts(refuse: Refuse) -> None:
    signals = {"rnd": {"gamma": 0.5}, "curiosity": {"gamma": 0.5}}
    assert TrainerSettings.model_validate({"trainer_type": "dqn", "reward_signals": signals}).reward_signals
    assert refuse(
        "behaviors: {A: {trainer_type: vdn, reward_signals: {rnd: {gamma: 0.5}, curiosity: {}}}}"
    ) == [
        "run.yaml:1: behaviors.A.reward_signals.curiosity.gamma: expected 0.5 as of rnd, because vdn learns one value "
        "of all signals, got 0.99"
    ]
    (message,) = refuse("behaviors: {A: {trainer_type: random, reward_signals: {rnd: {strength: 1}}}}")
    assert message.endswith("learns from, got rnd")


@pytest.mark.parametrize("trainer_type", ["sac", "dqn_share", "dqn_consensus", "sic"])
def test_layer_norm_is_refused_where_networks_lack_it(refuse: Refuse, trainer_type: str) -> None:
    settings = f"{{trainer_type: {trainer_type}, network_settings: {{layer_norm: true}}}}"
    assert refuse(f"behaviors: {{A: {settings}}}") == [
        "run.yaml:1: behaviors.A.network_settings.layer_norm: expected false, as networks of "
        f"{trainer_type} have no such form, got true"
    ]


@pytest.mark.parametrize("trainer_type", ["dqn_share", "dqn_consensus", "sic"])
def test_an_activation_is_refused_where_networks_have_their_own(refuse: Refuse, trainer_type: str) -> None:
    settings = f"{{trainer_type: {trainer_type}, network_settings: {{activation: tanh}}}}"
    assert refuse(f"behaviors: {{A: {settings}}}") == [
        f"run.yaml:1: behaviors.A.network_settings.activation: expected nothing, as networks of {trainer_type} have "
        "their own, got tanh"
    ]
    (unknown,) = refuse("behaviors: {A: {network_settings: {activation: gelu}}}")
    assert "expected 'swish', 'relu' or 'tanh', got 'gelu'" in unknown


@pytest.mark.parametrize("above", ["", "reward_signals: {gail: {demo_path: some.demo, "])
def test_layer_norm_is_refused_beside_an_activation(refuse: Refuse, above: str) -> None:
    network = f"{above}network_settings: {{layer_norm: true, activation: tanh}}{'}}' * bool(above)}"
    (message,) = refuse(f"behaviors: {{A: {{{network}}}}}")
    expected = "network_settings.layer_norm: expected false beside activation: tanh, as it has ReLU, got true"
    assert message.endswith(expected)


def test_agents_that_learn_one_after_the_other_share_one_estimate(refuse: Refuse) -> None:
    settings = "{trainer_type: happo, hyperparameters: {advantage_estimates: every_epoch}}"
    assert refuse(f"behaviors: {{A: {settings}}}") == [
        "run.yaml:1: behaviors.A.hyperparameters.advantage_estimates: expected 'once', as each agent learns from "
        "what those before it have become, got 'every_epoch'"
    ]


@pytest.mark.parametrize("trainer_type", ["vdn", "qmix"])
def test_value_decomposition_learns_from_the_sum_of_rewards(refuse: Refuse, trainer_type: str) -> None:
    settings = f"{{trainer_type: {trainer_type}, hyperparameters: {{reward_mode: individual}}}}"
    assert refuse(f"behaviors: {{A: {settings}}}") == [
        "run.yaml:1: behaviors.A.hyperparameters.reward_mode: expected 'team_sum', got 'individual'"
    ]


@pytest.mark.parametrize("trainer_type", ["mappo", "idqn", "vdn"])
def test_group_sum_and_team_sum_are_one_reward_mode(load: Load, trainer_type: str) -> None:
    modes = {
        word: load(
            f"behaviors: {{A: {{trainer_type: {trainer_type}, hyperparameters: {{reward_mode: {word}}}}}}}"
        )
        for word in ("group_sum", "team_sum")
    }
    assert modes["group_sum"] == modes["team_sum"]


def test_a_replay_buffer_holds_a_sequence_of_memory(refuse: Refuse, load: Load) -> None:
    text = """
        behaviors:
          A:
            trainer_type: sac
            hyperparameters: {{batch_size: 64, buffer_size: {}}}
            network_settings: {{memory: {{sequence_length: 64}}}}
    """
    assert refuse(text.format(50)) == [
        "run.yaml:5: behaviors.A.hyperparameters.buffer_size: expected at least the 64 steps of a sequence "
        "(memory.sequence_length), got 50"
    ]
    load(text.format(64))


@pytest.mark.parametrize(
    ("behavior", "line"),
    [
        (
            "{trainer_type: coma, hyperparameters: {num_epoch: 3}}",
            "hyperparameters.num_epoch: expected 1, because coma learns from a rollout once unless there is a "
            "ratio_clip, got 3",
        ),
        (
            "{trainer_type: sic, behavioral_cloning: {demo_path: a.demo}}",
            "behavioral_cloning: expected nothing, as sic decides from what a whole group sees, which demonstrations "
            "do not say, got a.demo",
        ),
        ("{trainer_type: MAPPO}", "got 'MAPPO' (did you mean 'mappo'?)"),
    ],
)
def test_settings_that_no_group_could_learn_by_are_refused(refuse: Refuse, behavior: str, line: str) -> None:
    (message,) = refuse(f"behaviors: {{A: {behavior}}}")
    assert message.endswith(line)


def test_settings_that_allow_learning_are_accepted(load: Load) -> None:
    load("behaviors: {A: {trainer_type: coma, hyperparameters: {num_epoch: 3, ratio_clip: 0.2}}}")
    alike = "hyperparameters: {share: full, agent_ids: false}, behavioral_cloning: {demo_path: a.demo}"
    load(f"behaviors: {{A: {{trainer_type: happo, {alike}}}, B: {{trainer_type: coma, {alike}}}}}")


def test_a_key_of_another_trainer_type_names_that_type(refuse: Refuse) -> None:
    text = "behaviors: {{A: {{trainer_type: {}, hyperparameters: {{{}: 1}}}}}}"
    assert (
        "'beta' is a key of ppo, mappo, happo, poca, coma, not of sac"
        in refuse(text.format("sac", "beta"))[0]
    )
    assert "'shared_critic' is a key of ppo, not of poca" in refuse(text.format("poca", "shared_critic"))[0]


def test_hyperparameters_of_another_trainer_type_are_refused_in_python_too() -> None:
    with pytest.raises(ValidationError, match="trainer type 'sac' needs SACSettings, got POCASettings"):
        TrainerSettings(trainer_type="sac", hyperparameters=POCASettings())


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        TrainerSettings().max_steps = 3  # type: ignore[misc]  # that it cannot be is the point


IMPOSSIBLE = [
    ("hyperparameters", {"learning_rate": 0}),
    ("hyperparameters", {"epsilon": 0}),
    ("hyperparameters", {"lambd": 1.1}),
    ("hyperparameters", {"lambd": -0.1}),
    ("hyperparameters", {"beta": -1e-3}),
    ("hyperparameters", {"batch_size": 0}),
    ("hyperparameters", {"buffer_size": 0}),
    ("hyperparameters", {"num_epoch": 0}),
    ("hyperparameters", {"max_grad_norm": 0}),
    ("reward_signals", {"extrinsic": {"gamma": 1.01}}),
    ("network_settings", {"hidden_units": 0}),
    ("network_settings", {"num_layers": -1}),
    ("max_steps", -1),
    ("time_horizon", 0),
    ("summary_freq", 0),
    ("checkpoint_interval", 0),
]


@pytest.mark.parametrize(("key", "value"), IMPOSSIBLE)
def test_impossible_values_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=r"greater than|less than|at most"):
        TrainerSettings.model_validate({key: value})


ODD = [
    ("hyperparameters", {"lambd": 0, "beta": 0}),
    ("hyperparameters", {"batch_size": 100, "buffer_size": 10}),
    ("hyperparameters", {"max_grad_norm": None}),
    ("reward_signals", {"extrinsic": {"gamma": 0, "strength": -1}}),
    ("network_settings", {"num_layers": 0}),
    ("keep_checkpoints", -1),
    ("max_steps", 0),
    ("time_horizon", 1),
]


@pytest.mark.parametrize(("key", "value"), ODD)
def test_odd_but_legal_values_pass(key: str, value: Any) -> None:
    assert TrainerSettings.model_validate({key: value})


def test_every_trainer_type_is_tuned_with_the_common_hyperparameters() -> None:
    for model in HYPERPARAMETERS.values():
        assert {"batch_size", "buffer_size", "learning_rate", "max_grad_norm"} <= set(model.model_fields)


@pytest.mark.parametrize("trainer_type", ["sac", "dqn", "qmix"])
def test_replayed_rewards_are_not_normalized(trainer_type: str, refuse: Refuse) -> None:
    assert refuse(f"""
        behaviors:
          A:
            trainer_type: {trainer_type}
            reward_signals: {{extrinsic: {{normalize_rewards: true}}}}
    """) == [
        f"run.yaml:5: behaviors.A.reward_signals.extrinsic.normalize_rewards: expected false, as {trainer_type} "
        "learns from a replay buffer, which outlives any scale of returns, got true"
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


def test_a_pool_that_is_not_mentioned_is_that_of_mlagents() -> None:
    rules = SelfPlaySettings()
    assert (rules.opponents, rules.has_league, rules.fixed_opponents) == ({"self": 1.0}, False, [])


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("[]", "expected at least one player, got an empty list"),
        ("[random, random]", "'random' stands there twice"),
        ("random", "expected a list of players, or a mapping from players to weights, got 'random'"),
        ("[7]", "expected the name of a player, got 7"),
        (
            "[a/..]",
            "player 'a/..': expected a run, RUN@STEP, RUN@best, FILE.safetensors, random or expert; a run id",
        ),
    ],
)
def test_opponents_that_cannot_be_are_refused(refuse: Refuse, written: str, complaint: str) -> None:
    (line,) = refuse(f"behaviors:\n  A:\n    self_play:\n      opponents: {written}\n")
    assert line.startswith(f"run.yaml:4: behaviors.A.self_play.opponents: {complaint}")


def test_weights_of_opponents_are_positive(refuse: Refuse) -> None:
    (line,) = refuse("behaviors:\n  A:\n    self_play:\n      opponents: {random: 0}\n")
    assert line.startswith("run.yaml:4: behaviors.A.self_play.opponents.random: ")


def test_hyperparameters_are_checked_behind_a_mistyped_trainer_type(refuse: Refuse) -> None:
    first, *others = refuse(
        """
        behaviors:
          A:
            trainer_type: sacc
            hyperparameters: {batch_size: 0, taw: 0.1, init_entcoef: much}
            max_steps: ten
        """
    )
    assert "expected a trainer type" in first
    assert "(did you mean 'sac'?)" in first
    assert sorted(others) == [
        "run.yaml:5: behaviors.A.hyperparameters.batch_size: expected at least 1, got 0 (checked as 'sac')",
        "run.yaml:5: behaviors.A.hyperparameters.init_entcoef: expected a number, got 'much' (checked as 'sac')",
        "run.yaml:5: behaviors.A.hyperparameters.taw: unknown key (did you mean 'tau'?) (checked as 'sac')",
        "run.yaml:6: behaviors.A.max_steps: expected a whole number, got 'ten'",
    ]


def test_hyperparameters_of_a_trainer_type_like_no_other_are_not_judged(refuse: Refuse) -> None:
    (message,) = refuse("behaviors: {A: {trainer_type: zzzz, hyperparameters: {batch_size: 0}}}")
    assert "expected a trainer type" in message
