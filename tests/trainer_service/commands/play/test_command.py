"""``mlagents-style play``: an environment without a trainer."""

from __future__ import annotations

import itertools
import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import trainer_service
from trainer_service.errors import UserError
from trainer_service.learning.rollout.episode_scores import EndedEpisode
from unity_bridge.simulators.rendering.captions import caption_height
from unity_bridge.simulators.scenes.basic import Basic

pytestmark = pytest.mark.process
LINE = re.compile(
    r"(?P<behavior>.+), episode (?P<number>\d+): return (?P<value>-?[\d.]+), length (?P<length>\d+), (?P<outcome>.+)"
)


def episodes_in(text: str) -> list[dict[str, str]]:
    return [match.groupdict() for line in text.splitlines() if (match := LINE.fullmatch(line))]


@pytest.mark.parametrize(
    ("env", "behavior", "outcome"),
    [
        ("sim:basic", "Basic", "terminated"),
        ("gym:CartPole-v1", "CartPole-v1", "terminated"),
        ("pettingzoo:mpe2.simple_spread_v3", "simple_spread_v3", "time limit"),
    ],
)
def test_random_actions_are_played(
    mlagents_style, workplace: Path, env: str, behavior: str, outcome: str
) -> None:
    if env.startswith("pettingzoo:"):
        pytest.importorskip("mpe2")
    said = mlagents_style("play", env, "--episodes=6", "--seed=3")
    assert said.code == 0, said.err
    *lines, summary = said.out.splitlines()
    played = episodes_in("\n".join(lines))
    assert sorted(each["number"] for each in played) == list("123456")
    assert {(each["behavior"], each["outcome"]) for each in played} == {(behavior, outcome)}
    mean = np.mean([float(each["value"]) for each in played])
    assert summary.startswith(f"{behavior}: mean return ")
    assert "over 6 episodes" in summary
    told = float(summary.partition("mean return ")[2].split()[0])
    assert told == pytest.approx(mean, rel=0.01, abs=0.01)
    assert list(workplace.iterdir()) == []  # nothing is written
    assert mlagents_style("play", env, "--episodes=6", "--seed=3").out == said.out
    assert mlagents_style("play", env, "--episodes=6", "--seed=4").out != said.out


def test_the_scenes_own_expert_plays(mlagents_style) -> None:
    said = mlagents_style("play", "sim:basic", "--policy=expert", "--episodes=3", "--json")
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert (result["env"], result["policy"]) == ("sim:basic", "expert")
    basic = result["behaviors"]["Basic"]
    assert (basic["episodes"], basic["mean_return"], basic["mean_length"]) == (3, pytest.approx(0.93), 7.0)
    assert [each["episode"] for each in basic["played"]] == [1, 2, 3]
    assert all(each["terminated"] and not each["truncated"] for each in basic["played"])


@pytest.mark.parametrize("calls", [3, 7 * 2 + 3], ids=["in the first episode", "in the third"])
def test_ctrl_c_keeps_the_episodes_that_ended(mlagents_style, monkeypatch, calls: int) -> None:
    expert, at = Basic.expert, iter(range(1, 10**9))

    def think(self):
        if next(at) == calls:
            signal.raise_signal(signal.SIGINT)
        return expert(self)

    monkeypatch.setattr(Basic, "expert", think)
    said = mlagents_style("play", "sim:basic", "--policy=expert", "--episodes=1000", "--json")
    assert said.code == 130
    if calls < 7:
        assert "interrupted before any episode ended" in said.err
        assert said.out == ""
        return
    result = json.loads(said.out)
    assert result["interrupted"]
    assert (result["behaviors"]["Basic"]["episodes"], result["behaviors"]["Basic"]["mean_length"]) == (2, 7.0)
    assert "Interrupted after 2 of 1000 episodes: the scores are of those that ended" in said.err


def test_a_runs_policy_plays_as_it_is_evaluated(mlagents_style, results: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    flags = ("--results-dir", results, "--episodes=4", "--stochastic", "--json")
    said = mlagents_style("play", "sim:basic", "--policy=basic", *flags)
    assert said.code == 0, said.err
    played = json.loads(said.out)["behaviors"]["Basic"]
    returns = [each["return"] for each in played.pop("played")]
    assert np.mean(returns) == pytest.approx(played["mean_return"])
    assert played == json.loads(mlagents_style("evaluate", "basic", *flags).out)["behaviors"]["Basic"]
    last = mlagents_style("play", "sim:basic", "--policy=basic@last", *flags)
    assert json.loads(last.out)["behaviors"]["Basic"]["mean_return"] == played["mean_return"]
    file = results / "basic" / "Basic" / "checkpoint.safetensors"
    assert file.exists()
    of_file = mlagents_style("play", "sim:basic", "--policy", file, "--episodes=4", "--stochastic", "--json")
    assert of_file.code == 0, of_file.err
    assert json.loads(of_file.out)["behaviors"]["Basic"]["episodes"] == 4
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def test_a_film_has_captions(mlagents_style) -> None:
    from PIL import Image, ImageSequence

    said = mlagents_style(
        "play", "sim:basic", "--policy=expert", "--episodes=2", "--record=walk.gif", "--record-episodes=2"
    )
    assert said.code == 0, said.err
    with Image.open("walk.gif") as film:
        frames = [np.asarray(frame.convert("L"), np.int64) for frame in ImageSequence.Iterator(film)]
    captions = [frame[-caption_height(2) :] for frame in frames]
    result = caption_height(2) // 2
    assert all((caption[:result] < 128).any() for caption in captions)  # a line on the running episode
    assert not (captions[0][result:] < 128).any()  # no episode has ended
    assert (captions[-1][result:] < 128).any()
    changes = [np.abs(after - before).max() for before, after in itertools.pairwise(captions)]
    assert min(changes) > 100  # every frame shows its own step


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["sim:bsic"], "did you mean 'sim:basic'?"),
        (["gym:CartPol-v1"], "Did you mean: `CartPole`?"),
        (["no/such/build"], "no/such/build"),
        (["gym:CartPole-v1", "--policy=expert"], "has no expert of its own; expected one of sim:3dball, sim:basic"),
        (["gym:CartPole-v1", "--policy=expert"], "or another player: random or the policy of a run"),
        (["sim:basic", "--policy=expret"], "--policy: expected random, expert or a run, but no run 'expret'"),
        (["sim:basic", "--stochastic"], "--stochastic: not allowed for 'random'"),
        (["sim:basic", "--episodes=0"], "--episodes: expected at least 1, got 0"),
        (["sim:basic", "--max-episode-steps=0"], "--max-episode-steps: expected at least 1, got 0"),
        (["sim:basic", "--record=walk.png"], "expected a .gif or .mp4 file, got 'walk.png'"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_named(mlagents_style, line: list[str], expected: str) -> None:
    said = mlagents_style("play", *line)
    assert said.code == 2
    assert expected in said.err
    assert said.out == ""
    assert "Traceback" not in said.err


def test_programs_play_too(processes: None, results: Path, tmp_path: Path) -> None:
    ended: list[tuple[str, EndedEpisode]] = []
    film = tmp_path / "walk.gif"
    scores = trainer_service.play(
        "sim:basic", "expert", episodes=3, record=film, on_episode=lambda *each: ended.append(each)
    )
    assert scores["Basic"].returns == pytest.approx((0.93,) * 3)
    assert [(name, each.number, each.truncated) for name, each in ended] == [
        ("Basic", number, False) for number in (1, 2, 3)
    ]
    assert film.stat().st_size > 0
    run = results / "basic"
    assert (
        trainer_service.play("sim:basic", run, episodes=3, env_args=[], deterministic=False)["Basic"].returns
        == trainer_service.evaluate(run, episodes=3, env_args=[], deterministic=False)["Basic"].returns
    )
    with pytest.raises(UserError, match="checkpoint: not allowed for the player 'random'"):
        trainer_service.play("sim:basic", checkpoint="best")
    with pytest.raises(UserError, match="env: expected an environment to play, got none"):
        trainer_service.play(None)
