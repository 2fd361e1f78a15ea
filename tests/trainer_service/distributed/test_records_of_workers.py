"""What workers are told and what they send, on its way from one process to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from in_process_workers import SMALL_PPO, Finished, learn_in_process, options_of, shipped
from walkers import Walk, walkers

from trainer_service.distributed.records import as_arrays, as_tensors, writable
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.rollout.joint_steps import find_joint_steps
from trainer_service.learning.rollout.trajectories import Trajectories

MEMORY = {"hidden_units": 8, "num_layers": 1, "memory": {"memory_size": 8, "sequence_length": 4}}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vectors": ({}, {}),
    "memory": ({"network_settings": MEMORY}, {}),
    "pictures": ({"network_settings": {"hidden_units": 8, "num_layers": 1, "vis_encode_type": "simple"}}, {}),
    "groups": ({"trainer_type": "mappo"}, {"group": True}),
}


def run_of(kind: str, tmp_path: Path, **more: Any) -> Finished:
    settings, walk = KINDS[kind]
    worlds = walkers({"A?team=0": Walk(**walk)}, pictures=kind == "pictures")
    return learn_in_process(options_of({"A": {**SMALL_PPO, **settings}}), worlds, tmp_path, **more)


def arrays(record: Any) -> Iterator[np.ndarray]:
    """Every array of nested records, in order."""
    if isinstance(record, np.ndarray):
        yield record
    elif isinstance(record, dict):
        for each in record.values():
            yield from arrays(each)
    elif isinstance(record, list | tuple):
        for each in record:
            yield from arrays(each)
    elif is_dataclass(record):
        for each in fields(record):
            yield from arrays(getattr(record, each.name))


@pytest.mark.parametrize("kind", KINDS)
def test_records_cross_processes_bit_for_bit_and_can_be_learned_from(kind: str, tmp_path: Path) -> None:
    run = run_of(kind, tmp_path)
    assert run.behaviors["A"].updates > 0
    for record in (*(answer for _, answer in run.pool.answers[-2:]), run.pool.requests[-1]):
        again = shipped(record)
        pairs = list(zip(arrays(record), arrays(again), strict=True))
        assert len(pairs) > 3
        for before, after in pairs:
            assert before.dtype == after.dtype
            np.testing.assert_array_equal(before, after)
    arrived = [array for batch in run.batches() for array in arrays(shipped(batch))]
    assert not all(array.flags.writeable for array in arrived)
    assert all(array.flags.writeable for batch in run.batches() for array in arrays(writable(shipped(batch))))


def test_states_cross_as_arrays_and_arrive_as_tensors(tmp_path: Path) -> None:
    state = run_of("memory", tmp_path).behaviors["A"].learner.actor.state_dict()
    assert_equal_states(flat(dict(state)), flat(as_tensors(shipped(as_arrays(state)))))
    sent = as_arrays(state)
    for tensor in flat(dict(state)).values():
        if isinstance(tensor, torch.Tensor):
            tensor.zero_()
    assert any(array.any() for array in arrays(sent))


def test_groups_of_different_workers_stay_apart(tmp_path: Path) -> None:
    run = run_of("groups", tmp_path)
    parts = run.trajectories()[:2]
    assert all(part.group_index is not None for part in parts)
    joint = find_joint_steps(Trajectories.concatenate(parts), 2)
    alone = [find_joint_steps(part, 2) for part in parts]
    assert len(joint) == sum(map(len, alone))
    assert len(joint.lengths) == sum(len(each.lengths) for each in alone)
    of_first = len(parts[0])
    decided = joint.steps[(joint.steps >= 0).all(axis=1)]
    assert len(decided)
    assert ((decided < of_first).all(axis=1) | (decided >= of_first).all(axis=1)).all()


def test_actions_are_those_of_the_policy_that_was_published(tmp_path: Path) -> None:
    network = {"hidden_units": 8, "num_layers": 1, "normalize": False}
    options = options_of({"A": {**SMALL_PPO, "network_settings": network}})
    run = learn_in_process(options, walkers({"A?team=0": Walk(length=1)}), tmp_path)
    requests = {request.number: request for request in run.pool.requests}
    compared = 0
    for _, answer in run.pool.answers[2:]:
        policy = requests[answer.number].policies["A"]
        spec = run.behaviors["A"].spec
        algorithm = ALGORITHMS["ppo"](spec, policy.settings, Compute(torch.device("cpu"), 1))
        algorithm.actor.load_state_dict(as_tensors(policy.state), 0)
        for _, batch in answer.batches:
            if batch.trajectories is None:
                continue
            part = writable(batch.trajectories)
            likeliest = algorithm.actor.act(
                ActRequest(part.observations, part.allowed_actions, part.memories, True)
            )
            same = (likeliest.discrete_actions == part.discrete_actions)[:, 0]
            np.testing.assert_allclose(part.log_probs[same], likeliest.log_probs[same], rtol=1e-5)
            assert same.any()
            assert not same.all()
            compared += len(part)
    assert compared > 100


def test_the_most_recent_of_a_statistic_is_that_of_the_first_worker(tmp_path: Path) -> None:
    from unity_bridge.side_channels import Aggregation

    def worlds(number: int, academy: Any) -> Any:
        world = walkers({"A?team=0": Walk()})(number, academy)
        advance = world.step

        def step(actions: Any) -> Any:
            academy.add_statistic("Mean", float(number))
            academy.add_statistic("Last", float(number), Aggregation.MOST_RECENT)
            return advance(actions)

        world.step = step
        return world

    options = options_of({"A": {**SMALL_PPO, "summary_freq": 10**6}}, distributed={"num_workers": 3})
    series = learn_in_process(options, worlds, tmp_path).behaviors["A"].partial_summary(1.0).series
    assert series["Last"].value == 0.0
    assert 0.5 < series["Mean"].value < 1.5
