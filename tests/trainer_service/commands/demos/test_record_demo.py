"""``mlagents-style record-demo``: experts and trained policies in a file, whole episodes only."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationFile
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.scenes.basic import Basic

BASIC_RETURN = 0.93
"""Of the best episode of sim:basic, seven steps long."""


def episodes_of(path: str | Path) -> list[DemonstratedSegment]:
    return list(DemonstrationFile(Path(path)).segments(10**6))


def expert_of(mlagents_style, env: str, *flags: object) -> list[DemonstratedSegment]:
    said = mlagents_style("record-demo", env, "--policy=heuristic", "-o", "expert.demo", "--force", *flags)
    assert said.code == 0, said.err
    return episodes_of("expert.demo")


def test_an_agent_is_recorded_while_it_has_the_wanted_behavior(mlagents_style) -> None:
    """One agent of two behaviors in turn: in every tick one of them has no agent that waits."""
    flags = ("--episodes=3", "--behavior=SmallWallJump", "--env-args", "--agents=1")
    episodes = expert_of(mlagents_style, "sim:walljump", *flags)
    assert [bool(each.terminated) for each in episodes] == [True] * 3
    assert all(each.rewards.sum() > 0.5 for each in episodes)


def test_an_experts_recording_played_again_earns_the_same(mlagents_style) -> None:
    (episode,) = expert_of(
        mlagents_style, "sim:pyramids", "--episodes=1", "--seed=7", "--env-args", "--agents=1"
    )
    scene = open_scene("sim:pyramids", agents=1)
    (behavior,) = scene.behaviors
    steps = scene.reset(7)
    for step, choice in enumerate(episode.discrete_actions):
        batch = steps[behavior]
        for seen, recorded in zip(batch.observations, episode.observations, strict=True):
            np.testing.assert_array_equal(seen[-1], recorded[step])
        action = scene.expert()[behavior]
        action.discrete[:] = choice
        steps = scene.step({behavior: action})
        assert steps[behavior].rewards[0] == episode.rewards[step]
    assert steps[behavior].num_terminal == 1
    assert episode.terminated


def test_agents_side_by_side_have_each_episode_in_one_segment(mlagents_style) -> None:
    episodes = expert_of(mlagents_style, "sim:basic", "--episodes=5", "--env-args", "--agents", "3")
    assert [len(each) for each in episodes] == [7] * 5
    for each in episodes:
        assert each.rewards.sum() == pytest.approx(BASIC_RETURN, abs=1e-6)
        position = each.observations[0].argmax(axis=1)
        assert position.tolist() == list(range(position[0], position[0] + 7))


def test_the_seed_decides_the_recorded_file(mlagents_style) -> None:
    files = []
    for seed in (3, 3, 4):
        expert_of(mlagents_style, "sim:pyramids", "--episodes=2", f"--seed={seed}")
        files.append(Path("expert.demo").read_bytes())
    assert files[0] == files[1] != files[2]


def test_episodes_at_the_limit_are_recorded_as_truncated(mlagents_style) -> None:
    flags = ("-o", "x.demo", "--episodes=3", "--max-episode-steps=4")
    said = mlagents_style("record-demo", "sim:basic", "--policy=heuristic", *flags)
    assert "3 of 3 episodes were cut at the limit of steps." in said.err
    assert [(len(each), each.truncated) for each in episodes_of("x.demo")] == [(4, True)] * 3


def test_a_file_is_not_replaced_unless_that_is_asked_for(mlagents_style) -> None:
    Path("x.demo").write_text("precious")
    line = ["record-demo", "sim:basic", "--policy=heuristic", "--episodes=1", "-o", "x.demo"]
    said = mlagents_style(*line)
    assert (said.code, said.err) == (2, "mlagents-style: error: 'x.demo' exists; --force replaces it\n")
    assert Path("x.demo").read_text() == "precious"
    assert mlagents_style(*line, "--force").code == 0
    assert len(episodes_of("x.demo")) == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "sim:basic --policy heuristic -o x.txt",
            "expected a name that ends in .demo, got 'x.txt'; say 'x.demo'",
        ),
        ("sim:basic --policy heuristic -o .", "expected the name of a file, got the folder"),
        ("sim:basic --policy heuristic -o x.demo --episodes 0", "--episodes: expected at least 1, got 0"),
        ("sim:basic --policy heuristic -o x.demo --stochastic", "--stochastic: an expert draws nothing"),
        ("sim:basik --policy heuristic -o x.demo", "did you mean 'sim:basic'?"),
        ("gym:CartPole-v1 --policy heuristic -o x.demo", "'gym:CartPole-v1' has no expert of its own"),
        ("build/Walker --policy heuristic -o x.demo", "env 'build/Walker': no such program"),
        ("sim:basic --policy never -o x.demo", "no run 'never' in 'results'"),
        (
            "sim:walljump --policy heuristic -o x.demo",
            "a recording holds one behavior, here are BigWallJump, SmallWallJump; choose with --behavior",
        ),
        (
            "sim:walljump --policy heuristic -o x.demo --behavior Jump",
            "--behavior: expected one of BigWallJump, SmallWallJump, got 'Jump'",
        ),
        ("sim:basic --policy heuristic -o file/x.demo", "cannot write 'file/x.demo'"),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_leaves_nothing(
    mlagents_style, workplace: Path, line: str, complaint: str
) -> None:
    (workplace / "file").touch()
    said = mlagents_style("record-demo", *line.split())
    assert said.code == 2
    assert complaint in said.err
    assert len([line for line in said.err.splitlines() if not line.startswith("[INFO]")]) == 1
    assert [path.name for path in workplace.iterdir()] == ["file"]


def at_call(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets something happen while the expert of sim:basic thinks about its so-manieth move."""
    expert, calls = Basic.expert, iter(range(1, 10**9))

    def think(self):
        if next(calls) == number:
            act()
        return expert(self)

    monkeypatch.setattr(Basic, "expert", think)


def test_ctrl_c_keeps_the_episodes_that_are_complete(mlagents_style, workplace: Path, monkeypatch) -> None:
    at_call(7 * 2 + 3, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    said = mlagents_style("record-demo", "sim:basic", "--policy=heuristic", "--episodes=1000", "-o", "x.demo")
    assert said.code == 0
    assert "Interrupted: the episodes that were complete are kept." in said.err
    assert said.out.startswith("Recorded 2 episodes of Basic: 14 steps")
    assert [len(each) for each in episodes_of("x.demo")] == [7, 7]
    assert [path.name for path in workplace.iterdir()] == ["x.demo"]


def test_a_scene_that_goes_wrong_leaves_nothing(mlagents_style, workplace: Path, monkeypatch) -> None:
    def fall() -> None:
        raise SceneError("the floor is gone")

    at_call(20, fall, monkeypatch)
    said = mlagents_style("record-demo", "sim:basic", "--policy=heuristic", "--episodes=100", "-o", "x.demo")
    assert said.code == 1
    assert "the floor is gone" in said.err
    assert list(workplace.iterdir()) == []


def run_of(mlagents_style, results: Path, run_id: str, env: str, *flags: object) -> list[DemonstratedSegment]:
    line = ("record-demo", env, f"--policy={run_id}", f"--results-dir={results}", "--output=run.demo")
    said = mlagents_style(*line, "--force", *flags)
    assert said.code == 0, said.err
    return episodes_of("run.demo")


def test_recorded_actions_are_the_policys_for_recorded_observations(mlagents_style, results: Path) -> None:
    from trainer_service.running.policy import load_policy

    policy = load_policy(results / "pole")
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    for episode in run_of(mlagents_style, results, "pole", "gym:CartPole-v1", "--episodes=2"):
        actions = policy.act(episode.observations)
        np.testing.assert_array_equal(actions.discrete, episode.discrete_actions)
        np.testing.assert_array_equal(episode.rewards, np.ones(len(episode)))
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


@pytest.mark.skipif(os.name != "posix", reason="the simulator is a script")
def test_an_executable_is_recorded_like_any_environment(
    mlagents_style, results: Path, tmp_path: Path, repository: Path
) -> None:
    build = tmp_path / "build.x86_64"
    words = shlex.join([sys.executable, "-m", "unity_bridge.simulators", "sim:basic"])
    build.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(repository))} exec {words} "$@"\n')
    build.chmod(0o755)
    flags = ("--episodes=2", "--stochastic")
    ours = run_of(mlagents_style, results, "basic", "sim:basic", *flags)
    theirs = run_of(mlagents_style, results, "basic", str(build), *flags)
    assert [each.rewards.tolist() for each in theirs] == [each.rewards.tolist() for each in ours]
