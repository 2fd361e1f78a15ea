"""The rules: each setting follows from features."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainer_service.commands.suggest import rules
from trainer_service.commands.suggest.document import suggestion_of
from trainer_service.commands.suggest.features import BehaviorFeatures, EnvironmentFeatures
from trainer_service.config import parse_run_options
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, ObservationSpec

VECTOR = ObservationSpec("vector", (8,))
STATE = ObservationSpec(GLOBAL_STATE, (20,))
PICTURE = ObservationSpec("camera", (3, 84, 84))
GOALS = (ObservationSpec("achieved_goal", (3,)), ObservationSpec("desired_goal", (3,)))


def behavior(
    *sensors: ObservationSpec, continuous: int = 0, branches: tuple[int, ...] = (), **features: Any
) -> BehaviorFeatures:
    """Features of a behavior that ordinary values make unremarkable."""
    actions = ActionSpec(continuous, branches or (() if continuous else (3,)))
    usual: dict[str, Any] = {
        "name": "Agent",
        "agents": 8,
        "length": 100.0,
        "longest": 120,
        "episodes": 50,
        "density": 0.1,
    }
    return BehaviorFeatures(spec=BehaviorSpec(sensors or (VECTOR,), actions), **{**usual, **features})


def values(choices: Any) -> dict[str, Any]:
    """The values by key."""
    return {choice.key: choice.value for choice in choices}


@pytest.mark.parametrize(
    ("features", "mixed", "learner"),
    [
        (behavior(), False, "ppo"),
        (behavior(continuous=2, truncated=0.1), False, "ppo"),
        (behavior(continuous=2, truncated=1.0, density=1.0), False, "crossq"),
        (behavior(continuous=2, truncated=1.0, density=1.0, aliased=0.5), False, "sac"),
        (behavior(continuous=2, truncated=1.0, density=0.01), False, "ppo"),
        (behavior(PICTURE, continuous=2, truncated=1.0), False, "ppo"),
        (behavior(VECTOR, *GOALS, continuous=2, density=0.1), False, "sac"),
        (behavior(group_size=3), False, "mappo"),
        (behavior(group_size=3, members_leave=True, shared_rewards=1.0), False, "poca"),
        (behavior(group_size=3, members_leave=True, shared_rewards=0.5), False, "mappo"),
        (behavior(VECTOR, STATE, group_size=1), True, "mappo"),
        (behavior(group_size=1), False, "ppo"),
        (behavior(team_ids=(0, 1)), False, "ppo"),
        (behavior(team_ids=(0, 1), group_size=2), False, "poca"),
    ],
)
def test_learner_follows_actions_groups_and_ends(
    features: BehaviorFeatures, mixed: bool, learner: str
) -> None:
    assert rules.choose_learner(features, mixed=mixed).value == learner


def test_continuous_actions_get_small_steps_and_no_entropy_bonus() -> None:
    continuous, discrete = values(rules.ppo(behavior(continuous=2))), values(rules.ppo(behavior()))
    assert continuous["hyperparameters.learning_rate"] < discrete["hyperparameters.learning_rate"]
    assert continuous["hyperparameters.num_epoch"] > discrete["hyperparameters.num_epoch"]
    assert continuous["hyperparameters.beta"] == 0 < discrete["hyperparameters.beta"]


def test_continuous_actions_that_lose_reward_begin_with_more_noise() -> None:
    losing, earning = (values(rules.ppo(behavior(continuous=2, mean_reward=mean))) for mean in (-0.1, 0.1))
    assert losing["hyperparameters.log_std_init"] == 0.0
    assert "hyperparameters.log_std_init" not in earning
    assert "hyperparameters.log_std_init" not in values(rules.ppo(behavior(mean_reward=-0.1)))


@pytest.mark.parametrize("agents", [1, 8, 12, 100, 400])
def test_a_rollout_has_equally_long_trajectories(agents: int) -> None:
    size = rules.rollout_size(behavior(agents=agents, longest=40), least=2048)
    assert size >= 2048
    assert size % agents == 0
    assert size // agents >= 40


def test_groups_whose_agents_are_paid_apart_learn_from_the_sum() -> None:
    apart = values(rules.mappo(behavior(group_size=2, shared_rewards=0.3)))
    assert apart["hyperparameters.reward_mode"] == "group_sum"
    assert "hyperparameters.reward_mode" not in values(
        rules.mappo(behavior(group_size=2, shared_rewards=0.9))
    )


def test_a_global_state_is_shown_to_the_critic() -> None:
    assert values(rules.mappo(behavior(VECTOR, STATE)))["hyperparameters.state"] == "environment"
    assert values(rules.mappo(behavior()))["hyperparameters.state"] == "own_and_joint"


def test_stated_goals_are_replaced_in_the_replay_buffer() -> None:
    stated = behavior(VECTOR, *GOALS, continuous=2, aliased=0.9)
    chosen = values(rules.suggest_settings(EnvironmentFeatures(behaviors=(stated,)))["Agent"])
    assert chosen["hyperparameters.replay.type"] == "hindsight"
    assert "network_settings.memory.type" not in chosen  # hindsight has none


@pytest.mark.parametrize(("agents", "batch_size", "steps_per_update"), [(1, 256, 2.0), (48, 512, 48.0)])
def test_many_agents_share_one_gradient_step_of_a_larger_minibatch(
    agents: int, batch_size: int, steps_per_update: float
) -> None:
    chosen = values(rules.crossq(behavior(continuous=2, agents=agents)))
    assert chosen["hyperparameters.batch_size"] == batch_size
    assert chosen["hyperparameters.steps_per_update"] == steps_per_update


@pytest.mark.parametrize("learner", [rules.sac, rules.crossq])
def test_a_replay_buffer_is_saved_unless_it_has_pictures(learner: Any) -> None:
    assert values(learner(behavior(continuous=2)))["hyperparameters.save_replay_buffer"]
    assert "hyperparameters.save_replay_buffer" not in values(learner(behavior(PICTURE, continuous=2)))


@pytest.mark.parametrize("longest", [20, 300, 5000])
def test_replaced_goals_are_of_whole_episodes(longest: int) -> None:
    assert rules.time_horizon(behavior(VECTOR, *GOALS, continuous=2, longest=longest)).value >= longest


@pytest.mark.parametrize(("features", "learner"), [({}, "ppo"), ({"truncated": 1.0, "density": 1.0}, "sac")])
def test_goals_without_a_reward_function_are_left_as_they_are(features: dict[str, Any], learner: str) -> None:
    stated = behavior(VECTOR, *GOALS, continuous=2, no_hindsight="gym:X: it has none", **features)
    first, *others = rules.suggest_settings(EnvironmentFeatures(behaviors=(stated,)))["Agent"]
    assert first.value == learner
    assert first.reason.endswith("; its goals cannot be replaced: gym:X: it has none")
    assert "hyperparameters.replay.type" not in values(others)


@pytest.mark.parametrize(
    ("features", "normalized"),
    [
        (behavior(is_binary=True, observation_scale=0.4), False),
        (behavior(observation_scale=1.0), False),
        (behavior(observation_scale=30.0), True),
        (behavior(observation_scale=0.05), True),
        (behavior(continuous=2, observation_scale=1.0), True),
        (behavior(PICTURE), False),
    ],
)
def test_observations_of_another_size_than_one_are_normalized(
    features: BehaviorFeatures, normalized: bool
) -> None:
    assert rules.needs_normalization(features)[0] is normalized


def test_pictures_share_one_convolutional_network() -> None:
    assert values(rules.ppo(behavior(PICTURE)))["hyperparameters.shared_critic"]
    assert "hyperparameters.shared_critic" not in values(rules.ppo(behavior()))


def test_hidden_state_needs_memory() -> None:
    assert "network_settings.memory.type" in values(rules.network(behavior(aliased=0.5), "ppo"))
    assert "network_settings.memory.type" not in values(rules.network(behavior(aliased=0.01), "ppo"))


@pytest.mark.parametrize(
    ("features", "gamma"),
    [
        (behavior(longest=25), 0.95),
        (behavior(longest=5), 0.9),
        (behavior(longest=1000), 0.99),
        (behavior(longest=25, survival=True), 0.99),
    ],
)
def test_the_discount_reaches_as_far_as_episodes(features: BehaviorFeatures, gamma: float) -> None:
    assert rules.discount(features)[0] == pytest.approx(gamma)


def test_sac_gets_rewards_of_size_one() -> None:
    key = "reward_signals.extrinsic.strength"
    assert values(rules.rewards(behavior(reward_scale=7.0), "sac"))[key] == pytest.approx(0.1)
    assert key not in values(rules.rewards(behavior(reward_scale=0.7), "sac"))


def test_curiosity_seeks_what_random_actions_did_not_find() -> None:
    key = "reward_signals.curiosity.strength"
    assert key in values(rules.rewards(behavior(events=0.0, density=0.0), "ppo"))
    assert key not in values(rules.rewards(behavior(events=0.3, density=0.0), "ppo"))
    assert key not in values(rules.rewards(behavior(events=0.0, density=0.0, survival=True), "ppo"))


def test_more_to_learn_gets_more_steps() -> None:
    steps = rules.choose_budget(behavior()).value
    assert rules.choose_budget(behavior(continuous=4)).value > steps
    assert rules.choose_budget(behavior(PICTURE)).value > steps
    assert (
        rules.choose_budget(behavior(group_size=3)).value > rules.choose_budget(behavior(group_size=2)).value
    )


def test_behaviors_of_one_environment_learn_for_equally_long() -> None:
    hunters = behavior(name="Hunter", group_size=3, agents=48)
    prey = behavior(name="Prey", agents=16)
    chosen = rules.suggest_settings(EnvironmentFeatures(behaviors=(hunters, prey)))
    budgets = {name: values(choices)["max_steps"] for name, choices in chosen.items()}
    assert budgets == {"Hunter": 3_000_000, "Prey": 1_000_000}
    assert values(chosen["Prey"])["summary_freq"] == 25_000


def test_a_task_of_survival_gets_long_trajectories_and_a_large_rollout() -> None:
    """A policy that hardly ever fails would otherwise learn from rollouts without a failure."""
    few, many = behavior(survival=True, agents=8), behavior(survival=True, agents=100)
    assert rules.time_horizon(few).value == 1000
    assert rules.time_horizon(many).value == 128
    assert rules.rollout_size(few, least=8000) == 8000
    assert rules.rollout_size(many, least=8000) == 12_800


def test_sides_of_one_behavior_play_against_earlier_policies() -> None:
    chosen = values(rules.self_play(behavior(team_ids=(0, 1)), 1_000_000))
    assert chosen["self_play.save_steps"] == 25_000
    assert not values(rules.self_play(behavior(), 1_000_000))


def test_behaviors_of_one_group_learn_as_one() -> None:
    keeper = behavior(name="Keeper", continuous=1, group_size=1, agents=8)
    player = behavior(name="Player", group_size=2, agents=16)
    found = EnvironmentFeatures(behaviors=(keeper, player), teams=(("Keeper", "Player"),))
    assert rules.heterogeneous_groups(found) == {"KeeperAndPlayer": {"Keeper": 1, "Player": 2}}
    (choices,) = rules.suggest_settings(found).values()
    assert values(choices)["trainer_type"] == "mappo"


EVERY_KIND = {
    "discrete": behavior(),
    "continuous": behavior(continuous=3, density=1.0),
    "smooth": behavior(continuous=3, density=1.0, truncated=1.0),
    "goals": behavior(VECTOR, *GOALS, continuous=2),
    "goals and hidden state": behavior(VECTOR, *GOALS, continuous=2, aliased=0.9),
    "goals without hindsight": behavior(VECTOR, *GOALS, continuous=2, no_hindsight="gym:X: it has none"),
    "both": behavior(continuous=1, branches=(2, 3)),
    "picture": behavior(PICTURE, VECTOR),
    "rare": behavior(events=0.0, density=0.0),
    "memory": behavior(aliased=0.9),
    "group": behavior(group_size=3),
    "group with memory": behavior(group_size=3, aliased=0.9, longest=4),
    "paid group": behavior(group_size=3, members_leave=True, shared_rewards=1.0, reward_scale=0.01),
    "sides": behavior(team_ids=(0, 1)),
    "groups of sides": behavior(team_ids=(0, 1), group_size=2),
    "short": behavior(longest=1, length=1.0),
    "no reward": behavior(reward_scale=0.0, density=0.0, events=0.0),
    "one agent": behavior(agents=1, longest=2000, length=2000.0, episodes=0),
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_suggestion_is_a_valid_configuration(kind: str) -> None:
    """It loads without a warning, and each choice of the rules arrives under its key."""
    suggestion = suggestion_of(EnvironmentFeatures(behaviors=(EVERY_KIND[kind],)), {"env_path": "gym:X"})
    loaded = parse_run_options(yaml.safe_load(suggestion.to_yaml()))
    assert not loaded.warnings
    settings = loaded.options.behaviors["Agent"].model_dump()
    for choice in suggestion.behaviors["Agent"]:
        value: Any = settings
        for part in choice.key.split("."):
            value = value[part]
        assert value == {"group_sum": "team_sum"}.get(choice.value, choice.value), choice.key


def test_each_choice_has_a_reason_in_its_line() -> None:
    suggestion = suggestion_of(EnvironmentFeatures(behaviors=(behavior(continuous=2),)), {})
    text = suggestion.to_yaml()
    for choice in suggestion.behaviors["Agent"]:
        key = choice.key.rpartition(".")[2]
        assert any(f"{key}: " in line and f"# {choice.reason}" in line for line in text.splitlines())
    assert len(list(suggestion.lines())) == len(suggestion.behaviors["Agent"])
