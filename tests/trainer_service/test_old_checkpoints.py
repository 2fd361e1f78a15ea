"""Runs that earlier versions saved: their policies act as they did, and learning goes on where it stopped.

A folder of tests/checkpoints/VERSION is what a short run of that version left. Its said.json tells what that version
made of it: the likeliest actions for some observations, and every tensor of its state after it was resumed, as
``summary`` tells it. Processors differ in the last bits of their sums, so tensors of floats are held to a tolerance.
Tensors of v0.1's ppo were recorded anew when the scale of normalized rewards stopped to depend on ``time_horizon``.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trainer_service
from trainer_service.algorithms import Compute
from trainer_service.behaviors.behavior import Behavior
from trainer_service.behaviors.saving import checkpoint_of, load_replay, restore
from trainer_service.runs.checkpoint import load_checkpoint, read_content

SAVED = Path(__file__).parents[1] / "checkpoints"
RUNS = sorted(path.parent for path in SAVED.glob("*/*/said.json"))


@pytest.fixture(params=RUNS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def run(request: pytest.FixtureRequest, workplace: Path) -> Path:
    """A copy of a run that an earlier version saved, where it would be resumed."""
    return Path(shutil.copytree(request.param, workplace / request.param.name))


@pytest.fixture
def said(run: Path) -> dict[str, Any]:
    """The actions and states that the earlier version computed from it."""
    content: dict[str, Any] = json.loads((run / "said.json").read_text(encoding="utf-8"))
    return content


def leaves(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested mappings and lists, with the keys that lead there."""
    if isinstance(content, list | tuple):
        content = dict(enumerate(content))
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from leaves(value, f"{name}/{key}")
    else:
        yield name, content


def lost(before: Any, after: Any) -> list[str]:
    """Names the leaves of a state that another lacks under any name: tensors bit for bit, numbers, texts."""
    there = Counter(_digest(leaf) for _, leaf in leaves(after))
    gone = []
    for name, leaf in leaves(before):
        digest = _digest(leaf)
        if there[digest] <= 0:
            gone.append(name)
        there[digest] -= 1
    return gone


def _digest(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.numpy()
    if not isinstance(leaf, np.ndarray):
        return repr(leaf)
    digest = hashlib.sha256(np.ascontiguousarray(leaf).tobytes()).hexdigest()
    return f"{leaf.dtype} {list(leaf.shape)} {digest}"


def summary(tensor: torch.Tensor) -> list[Any]:
    """What said.json holds of a tensor: its shape, and its norm and sum, or a digest where it holds no floats."""
    if not tensor.is_floating_point():
        return [list(tensor.shape), hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()]
    values = tensor.double()
    return [list(tensor.shape), float(values.norm()), float(values.sum())]


def unlike(state: Any, said: list[list[Any]]) -> list[list[Any]]:
    """The tensors that said.json tells of and a state lacks, under whatever name: each is found once."""
    there = [summary(leaf) for _, leaf in leaves(state) if isinstance(leaf, torch.Tensor)]
    missing = []
    for expected in said:
        found = next((each for each in there if _alike(each, expected)), None)
        if found is None:
            missing.append(expected)
        else:
            there.remove(found)
    return missing


def _alike(ours: list[Any], expected: list[Any]) -> bool:
    if ours[0] != expected[0] or len(ours) != len(expected):
        return False
    if len(expected) == 2:
        return bool(ours == expected)
    # Other instruction sets moved single values by 4e-6 of a tensor's root mean square. A first moment of Adam's that
    # is nothing but such noise is below 1e-7.
    size = math.prod(expected[0])
    tolerance = 1e-4 * expected[1] + 1e-7 * size**0.5
    return bool(
        abs(ours[1] - expected[1]) <= tolerance and abs(ours[2] - expected[2]) <= tolerance * size**0.5
    )


def test_there_is_an_old_run_of_each_kind_of_learner() -> None:
    assert {folder.name for folder in RUNS} >= {
        "ppo", "sac", "mappo", "happo", "poca", "coma", "qmix", "dqn", "dqn_share", "maddpg", "ddpg"
    }  # fmt: skip


def test_an_old_policy_acts_as_it_did(run: Path, said: dict[str, Any]) -> None:
    policy = trainer_service.load_policy(run)
    assert policy.behavior == said["behavior"]
    memories = None
    for decision in said["decisions"]:
        seen = [np.asarray(sensor, np.float32) for sensor in decision["observations"]]
        actions, memories = policy.predict(seen, memories, **said["agents"])
        np.testing.assert_array_equal(actions.discrete, decision["discrete"])
        np.testing.assert_allclose(actions.continuous, decision["continuous"], rtol=0, atol=1e-6)


def test_loading_an_old_state_loses_nothing(run: Path, said: dict[str, Any]) -> None:
    path = run / said["behavior"] / "checkpoint.pt"
    saved = load_checkpoint(path)
    behavior = Behavior(saved.behavior, saved.spec, saved.settings, Compute(torch.device("cpu"), 1))
    restore(behavior, saved)
    behavior.prepare()
    # Read as torch reads it, so that whatever is done to old states on their way in is held to what is in the file.
    stored = torch.load(path, weights_only=True)
    assert behavior.step == stored["step"]
    assert lost(stored["algorithm"], checkpoint_of(behavior).algorithm) == []
    replay = path.with_name("replay.npz")
    if replay.exists():
        load_replay(behavior, replay)
        after = dict(behavior.learner.replay_state())
        with np.load(replay) as arrays:
            # The ends of trajectories were saved in the order of time.
            end, count = arrays["counters"][2], len(arrays["finals.terminated"])
            slots = np.arange(end - count, end) % after["final_slots"]
            after |= {name: after[name][slots] for name in after if name.startswith("finals.")}
            assert lost(dict(arrays), after) == []


def test_an_old_run_goes_on_as_it_would_have(
    mlagents_style: Callable[..., Any], run: Path, said: dict[str, Any]
) -> None:
    before, end = said["resumed"]["step_before"], said["resumed"]["max_steps"]
    settings = (run / "configuration.yaml").read_text(encoding="utf-8")
    Path("config.yaml").write_text(settings.replace("max_steps: 200", f"max_steps: {end}"), encoding="utf-8")
    told = mlagents_style("learn", "config.yaml", "--resume", "--results-dir=.")
    assert told.code == 0, told.err
    assert f"Resuming '{said['behavior']}' from step {before}." in told.out
    assert "[WARNING]" not in told.out + told.err
    after = read_content(run / said["behavior"] / "checkpoint.safetensors")
    assert not (run / said["behavior"] / "checkpoint.pt").exists()
    assert after["step"] == said["resumed"]["step"]
    assert unlike(after["algorithm"], said["tensors"]) == []


def test_a_run_that_learned_nothing_more_is_noticed(run: Path, said: dict[str, Any]) -> None:
    """The state before it was resumed is not taken for that after it."""
    before = torch.load(run / said["behavior"] / "checkpoint.pt", weights_only=True)
    assert len(unlike(before["algorithm"], said["tensors"])) > len(said["tensors"]) // 4
