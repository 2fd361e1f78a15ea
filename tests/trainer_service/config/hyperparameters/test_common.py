"""Attributes of settings that tell kinds of learners apart, by the paper of each learner."""

from __future__ import annotations

import pytest

from trainer_service.config import HYPERPARAMETERS
from trainer_service.config.hyperparameters.common import GroupSettings
from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters

GROUPS = {kind for kind, model in HYPERPARAMETERS.items() if issubclass(model, GroupSettings)}
REPLAY = {kind for kind, model in HYPERPARAMETERS.items() if issubclass(model, ReplayHyperparameters)}


def kinds(attribute: str) -> set[str]:
    return {kind for kind, model in HYPERPARAMETERS.items() if getattr(model, attribute)}


def test_class_attributes_tell_kinds_of_learners_apart() -> None:
    assert kinds("learns") == HYPERPARAMETERS.keys() - {"random"}
    assert kinds("learns_from_replay") == REPLAY
    assert kinds("learns_by_group") == GROUPS
    assert kinds("communicates") == {"dqn_share", "dqn_consensus", "sic"}
    assert kinds("needs_actions") == HYPERPARAMETERS.keys() - {"ppo", "random"}
    assert HYPERPARAMETERS.keys() - kinds("supports_memory") == {"random", "crossq"}
    assert HYPERPARAMETERS.keys() - kinds("supports_stale_rollouts") == {"coma"}
    assert kinds("supports_reward_models") == HYPERPARAMETERS.keys() - {"random"}
    assert kinds("one_value") == REPLAY - {"sac", "crossq"}
    assert kinds("supports_cloning") == kinds("supports_reward_models") - kinds("communicates")
    assert HYPERPARAMETERS.keys() - kinds("supports_layer_norm") == {
        "sac",
        "crossq",
        "td3",
        "dqn_share",
        "dqn_consensus",
        "sic",
    }


@pytest.mark.parametrize("kind", HYPERPARAMETERS)
def test_only_groups_are_sized_and_only_once(kind: str) -> None:
    hyper = HYPERPARAMETERS[kind]()
    sized = hyper.with_group_size(5)
    assert hyper.num_agents == 1
    assert sized.num_agents == (5 if kind in GROUPS else 1)
    assert sized.with_group_size(2) is sized or kind not in GROUPS
    assert isinstance(hyper, GroupSettings) == (kind in GROUPS)


def test_only_poca_takes_groups_of_any_size() -> None:
    limits = {kind: model().with_group_size(3).max_group_size for kind, model in HYPERPARAMETERS.items()}
    assert {kind for kind, limit in limits.items() if limit == 3} == GROUPS - {"poca"}
    poca = HYPERPARAMETERS["poca"]
    assert poca.model_validate({"group_size": 3, "agent_ids": True}).max_group_size == 3
    assert poca.model_validate({"group_size": 3, "share": "none"}).max_group_size == 3


def test_agent_indices_are_shown_where_agents_differ_or_communicate() -> None:
    shown = {kind for kind, model in HYPERPARAMETERS.items() if model().needs_agent_index}
    assert shown == GROUPS - {"mappo", "poca"}
    for kind in ("dqn_share", "sic"):
        assert HYPERPARAMETERS[kind].model_validate({"share": "full"}).needs_agent_index


@pytest.mark.parametrize("kind", ["mappo", "happo", "coma", "qmix"])
def test_the_global_state_is_needed_where_state_names_it(kind: str) -> None:
    model = HYPERPARAMETERS[kind]
    assert not model().needs_global_state
    assert model.model_validate({"state": "environment"}).needs_global_state
