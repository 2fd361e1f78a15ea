"""Runs that earlier versions saved: their policies act as they did, and learning goes on where it stopped.

A folder of tests/checkpoints/VERSION is what a short run of that version left. Its said.json tells what that version
made of it: the likeliest actions for some observations, and every tensor of its state after it was resumed.
"""

from __future__ import annotations

import hashlib
import json
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
from trainer_service.runs.checkpoint import load_checkpoint

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


def hashes(state: Any) -> list[list[Any]]:
    """The shape of every tensor and the SHA-256 of its bytes, sorted."""
    tensors = [leaf for _, leaf in leaves(state) if isinstance(leaf, torch.Tensor)]
    return sorted(
        [list(each.shape), hashlib.sha256(each.contiguous().numpy().tobytes()).hexdigest()]
        for each in tensors
    )


def machine() -> dict[str, str]:
    """Returns properties of this machine that sums of floats depend on in their last bits."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else "unknown",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


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
    behavior.restore(saved)
    behavior.prepare()
    # Read as torch reads it, so that whatever is done to old states on their way in is held to what is in the file.
    stored = torch.load(path, weights_only=True)
    assert behavior.step == stored["step"]
    assert lost(stored["algorithm"], behavior.checkpoint().algorithm) == []
    replay = path.with_name("replay.npz")
    if replay.exists():
        behavior.restore_replay(replay)
        with np.load(replay) as arrays:
            assert lost(dict(arrays), behavior.replay_state()) == []


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
    after = torch.load(run / said["behavior"] / "checkpoint.pt", weights_only=True)
    assert after["step"] == said["resumed"]["step"]
    if machine() == said["resumed"]["machine"]:
        assert hashes(after["algorithm"]) == said["tensors"]
