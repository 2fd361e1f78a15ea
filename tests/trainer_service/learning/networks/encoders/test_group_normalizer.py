"""Observations of groups, on the scale of single agents' observations."""

from __future__ import annotations

import copy

import torch

from trainer_service.learning.networks.encoders.group_normalizer import GroupNormalizer
from unity_bridge.specs import ObservationSpec

SENSORS = [
    ObservationSpec("eyes", (2,)),
    ObservationSpec("ears", (1,)),
    ObservationSpec("team_observations", (6,)),
    ObservationSpec("agent_id", (2,)),
]


def told(normalize: bool) -> tuple[GroupNormalizer, list[torch.Tensor]]:
    """Five groups of two, and one agent that is alone in its group."""
    generator = torch.Generator().manual_seed(3)
    eyes = torch.randn(11, 2, generator=generator) * 3.0 + 1.0
    ears = torch.randn(11, 1, generator=generator) + 5.0
    each = torch.cat([eyes, ears], dim=1)
    group = torch.cat([each[:10].reshape(5, 6).repeat_interleave(2, dim=0), torch.zeros(1, 6)])
    group[10, 3:] = each[10]
    who = torch.eye(2).repeat(6, 1)[1:]
    normalizer = GroupNormalizer(SENSORS, normalize=normalize)
    observations = [eyes, ears, group, who]
    normalizer.update(observations)
    return normalizer, observations


def test_everyone_is_shown_what_the_others_are_shown_of_themselves() -> None:
    normalizer, observations = told(normalize=True)
    eyes, ears, group, who = normalizer.forward(observations)
    each = torch.cat([eyes, ears], dim=1)
    assert not torch.equal(eyes, observations[0])
    assert torch.equal(group[:10], each[:10].reshape(5, 6).repeat_interleave(2, dim=0))
    assert torch.equal(who, observations[3])


def test_a_joint_step_is_learned_from_as_it_was_shown() -> None:
    normalizer, _ = told(normalize=True)
    # Who stands at the origin and hears nothing looks like nobody, to all who decide.
    eyes = torch.tensor([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    ears = torch.tensor([[[0.0], [0.0]], [[2.0], [1e-30]]])
    group = torch.cat([eyes, ears], dim=2).flatten(1)
    shown = normalizer.forward([eyes[:, 0], ears[:, 0], group, torch.eye(2)])[2]
    learned = torch.cat(normalizer.some([0, 1], [eyes, ears]), dim=2).flatten(1)
    assert torch.equal(learned, shown)
    assert (shown[0, :3] == 0.0).all()
    assert (shown[0, 3:] != 0.0).all()
    assert (shown[1] != 0.0).all()


def test_copies_normalize_by_themselves() -> None:
    normalizer, observations = told(normalize=True)
    again = copy.deepcopy(normalizer)
    expected = normalizer.forward(observations)[2]
    normalizer.update([sensor * 10.0 for sensor in observations])
    assert torch.equal(again.forward(observations)[2], expected)
    assert not torch.equal(normalizer.forward(observations)[2], expected)
    fresh = GroupNormalizer(SENSORS, normalize=True)
    fresh.load_state_dict(again.state_dict())
    assert torch.equal(fresh.forward(observations)[2], expected)
