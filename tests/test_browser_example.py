"""The page of examples/browser: its scene is Gymnasium's, and its policy is a bundle."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loaded_files import module_of

from trainer_service.running.interop.bundle import PolicyDescription

REPOSITORY = Path(__file__).parents[1]
EXAMPLE = REPOSITORY / "examples" / "browser"
BUNDLE = EXAMPLE / "policy" / "CartPole-v1"
REPLAY = """
import { readFileSync } from "node:fs";
const { CartPole } = await import(process.argv[1]);
const scene = new CartPole(), rows = [];
for (const { states, actions } of JSON.parse(readFileSync(process.argv[2]))) {
  scene.reset(states[0]);
  for (const [step, action] of actions.entries()) {
    if (states.length > 1) scene.state = states[step];
    const { observation, reward, terminated, truncated } = scene.step(action);
    rows.push({ state: scene.state, observation: Array.from(observation), reward, ends: [terminated, truncated] });
  }
}
console.log(JSON.stringify(rows));
"""
"""Replays episodes. With a state for each action, every step starts where Python's did: rounding errors grow."""


def played(seed: int, decide: Callable[[Any], int]) -> tuple[list[Any], list[int], list[dict[str, Any]]]:
    """An episode of Gymnasium's: states before each action, actions, and the results of each step."""
    env = pytest.importorskip("gymnasium").make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    states, actions, rows = [], [], []
    while not rows or not any(rows[-1]["ends"]):
        states.append(list(env.unwrapped.state))
        actions.append(decide(observation))
        observation, reward, *ends, _ = env.step(actions[-1])
        state = env.unwrapped.state.tolist()
        rows.append({"state": state, "observation": observation.tolist(), "reward": reward, "ends": ends})
    env.close()
    return states, actions, rows


@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_scene_in_javascript_is_gymnasiums(tmp_path: Path) -> None:
    policy, rng = module_of(BUNDLE / "policy.py").Policy(), np.random.default_rng(1)
    states, actions, rows = played(1, lambda seen: int(policy.act([seen[None]])["discrete"][0, 0]))
    assert len(actions) == 500
    episodes = [{"states": states, "actions": actions}]
    for seed in range(5):  # which fall, from their first state on
        states, actions, more = played(seed, lambda seen: int(rng.random() < 0.7))
        episodes.append({"states": states[:1], "actions": actions})
        rows += more
    (tmp_path / "episodes.json").write_text(json.dumps(episodes))
    line = [
        "node",
        "--input-type=module",
        "-e",
        REPLAY,
        (EXAMPLE / "cartpole.mjs").as_uri(),
        tmp_path / "episodes.json",
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for ours, theirs in zip(rows, json.loads(done.stdout), strict=True):
        np.testing.assert_allclose(theirs["state"], ours["state"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(theirs["observation"], ours["observation"], rtol=0, atol=1e-6)
        assert theirs["reward"] == ours["reward"]
        assert theirs["ends"] == ours["ends"]


def test_the_committed_bundle_is_small_and_has_the_present_runners() -> None:
    sources = REPOSITORY / "trainer_service" / "running" / "interop"
    for suffix in ("py", "mjs"):
        runner = (sources / f"policy_runner.{suffix}").read_text()
        assert (BUNDLE / f"policy.{suffix}").read_text() == runner
        assert len(runner.splitlines()) <= 40
    PolicyDescription.model_validate_json((BUNDLE / "policy.json").read_text())
    assert (BUNDLE / "policy.onnx").stat().st_size < 100_000
    assert len((EXAMPLE / "cartpole.mjs").read_text().splitlines()) <= 60
