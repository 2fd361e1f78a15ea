"""``mlagents-style evaluate A --against B``: real games, over a real channel."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_service.config import parse_player
from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.evaluation.match import Games, sides_of
from trainer_service.running.runs.checkpoint import save_checkpoint
from unity_bridge.simulators.group_scenes.duel import Duel

DUEL = ("Duel?team=0", "Duel?team=1")
RULES = {"save_steps": 200, "team_change": 600, "swap_steps": 100, "window": 3}


@pytest.mark.parametrize(
    ("text", "run_id", "which"),
    [
        ("duel", "duel", "last"),
        ("duel@120000", "duel", "120000"),
        ("duel@best", "duel", "best"),
        ("me@home", "me@home", "last"),
        ("me@home@7", "me@home", "7"),
        ("random@last", "random", "last"),
        ("random", None, "last"),
        ("some/file.safetensors", None, "last"),
    ],
)
def test_players_are_named_by_run_and_checkpoint(text: str, run_id: str | None, which: str) -> None:
    name = parse_player(text)
    assert (name.run_id, name.which) == (run_id, which)


def test_sides_are_teams_or_else_behavior_names() -> None:
    assert sides_of(DUEL, None) == {"0": {"Duel?team=0"}, "1": {"Duel?team=1"}}
    hunt = ("Hunter?team=0", "Leader?team=0", "Prey?team=0")
    assert list(sides_of(hunt, None)) == ["Hunter", "Leader", "Prey"]
    assert sides_of(hunt, "Leader, Hunter") == {"Leader, Hunter": {"Hunter?team=0", "Leader?team=0"}}
    strikers = ("Goalie?team=0", "Striker?team=0", "Striker?team=1")
    assert sides_of(strikers, "0") == {"0": {"Goalie?team=0", "Striker?team=0"}}


def test_behaviors_that_learned_as_a_team_are_one_side() -> None:
    hunt = ("Hunter?team=0", "Leader?team=0", "Prey?team=0")
    sides = sides_of(hunt, None, {"Pack": ["Leader", "Hunter"]})
    assert sides == {"Pack": {"Hunter?team=0", "Leader?team=0"}, "Prey": {"Prey?team=0"}}
    assert sides_of(hunt, "Pack", {"Pack": ["Leader", "Hunter"]}) == {"Pack": sides["Pack"]}


def test_a_side_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"--side: expected one of Hunter, Prey"):
        sides_of(("Hunter?team=0", "Prey?team=0"), "Hunter,Prey")
    with pytest.raises(UserError, match="no opponent: all agents are on one side"):
        sides_of(("Duel?team=0",), None)


def test_a_draw_is_half_a_win() -> None:
    games = Games((1.0, 0.5, 0.5, 0.0, 1.0), 1, (2.0,) * 5, (-2.0,) * 5)
    assert (games.won, games.drawn, games.lost, games.win_rate) == (2, 2, 1, 0.6)
    result = games.to_json()
    assert result["elo_difference"] == pytest.approx(70.437, abs=1e-3)  # 400 log10(0.6 / 0.4)
    assert (games + games).win_rate == 0.6


@pytest.fixture
def matches(mlagents_style) -> Callable[..., list[dict[str, Any]]]:
    """The matches of a call of evaluate."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        said = mlagents_style("evaluate", *arguments)
        assert said.code == 0, said.err
        found: list[dict[str, Any]] = json.loads(said.out)["matches"]
        return found

    return run


@pytest.fixture
def walker(make_behavior) -> Callable[..., Path]:
    """Makes the file of a rival that always goes at this speed, by a network of this trainer type."""

    def make(file: str, speed: float, **settings: Any) -> Path:
        behavior: Behavior = make_behavior(name="Rival", sizes=(3,), continuous=1, branches=(3,), **settings)
        checkpoint = checkpoint_of(behavior)
        weights = checkpoint.algorithm["network"]
        with torch.no_grad():
            for name, tensor in weights.items():
                if tensor.dtype == torch.float32 and "normalizer" not in name:
                    tensor.zero_()
                if name.endswith("mean.bias"):
                    tensor.fill_(3.0 * speed)
        save_checkpoint(checkpoint, Path(file))
        return Path(file)

    return make


def test_each_player_decides_for_its_own_side(matches, hosted, walker) -> None:
    rivals = hosted("rivals", ids=["Rival?team=0", "Rival?team=1"])
    memory = {"hidden_units": 4, "num_layers": 1, "memory": {"memory_size": 4, "sequence_length": 2}}
    fast, slow = walker("fast.safetensors", 0.9), walker("slow.safetensors", 0.1, network_settings=memory)
    found = matches(fast, "--against", slow, "--episodes=8", "--json", *rivals)
    # A tie of two rivals is a draw, so nothing but the speed decides.
    assert found[0]["mean_length"] == 4.0
    assert [found[0]["sides"][side]["won"] for side in "01"] == [4, 4]
    found = matches(slow, "--against", fast, "random", "--episodes=8", "--cross-play", "--json", *rivals)
    pairs = {(each["player"], each["opponent"]): each["win_rate"] for each in found}
    assert pairs["slow.safetensors", "fast.safetensors"] == 0.0
    assert pairs["fast.safetensors", "random"] == 1.0
    assert len(pairs) == 3


@pytest.mark.usefixtures("programs_can_be_imported")
def test_a_side_of_several_behaviors_earns_what_all_of_them_do(matches) -> None:
    pytest.importorskip("pettingzoo", reason='PettingZoo is not installed (pip install -e ".[pettingzoo]")')
    env = ("--env=pettingzoo:hunt_v1", "--episodes=8", "--json", "--env-args", "--copies", "3", "--behaviors")
    pack = "leader_0=Leader?team=0,hunter_*=Hunter?team=0,prey_0=Prey?team=1"
    (found,) = matches("random", "--against", "random", *env, pack)
    for side, mine, theirs in (("0", 21.0, -15.0), ("1", -15.0, 21.0)):  # three steps of 1 + 2 + 4, and of -5
        games = found["sides"][side]
        assert (games["games"], games["mean_length"]) == (4, 3.0)
        assert (games["mean_return"], games["std_return"]) == (mine, 0.0)
        assert (games["opponent_mean_return"], games["opponent_std_return"]) == (theirs, 0.0)


def test_a_run_plays_against_its_own_past(matches, mlagents_style, configure) -> None:
    configure("Duel", max_steps=900, checkpoint_interval=300, summary_freq=500, self_play=RULES)
    line = ["config.yaml", "--env=sim:duel", "--run-id=duel", "--seed=3", "--env-args", "--copies", "4"]
    assert mlagents_style("learn", *line).code == 0
    steps = sorted(
        int(path.stem.partition("-")[2]) for path in Path("results/duel/Duel").glob("Duel-*.safetensors")
    )
    (found,) = matches("duel", "--against", f"duel@{steps[0]}", "--episodes=8", "--json", "--side=1")
    assert (found["step"], found["opponent_step"], found["games"]) == (steps[-1], steps[0], 8)
    said = mlagents_style("evaluate", "duel", "--against", f"duel@{steps[0]}", "random", "--episodes=4")
    assert f"duel@{steps[0]}" in said.out
    said = mlagents_style("evaluate", "duel", "--against", "duel@1")
    assert said.code == 2
    assert f"player 'duel@1': '{Path('results/duel')}' has no checkpoint of step 1; it has Duel: " in said.err


@pytest.mark.parametrize("calls", [1, 100], ids=["in the first game", "later"])
def test_ctrl_c_keeps_the_games_that_ended(mlagents_style, monkeypatch, calls: int) -> None:
    expert, at = Duel.expert, itertools.count(1)

    def think(self: Duel) -> Any:
        if next(at) == calls:
            signal.raise_signal(signal.SIGINT)
        return expert(self)

    monkeypatch.setattr(Duel, "expert", think)
    said = mlagents_style(
        "evaluate", "random", "--against", "expert", "--env=sim:duel", "--episodes=100000", "--json"
    )
    assert said.code == 130, said.err
    if calls == 1:
        assert said.err.endswith("interrupted before any game ended\n")
        assert said.out == ""
        return
    result = json.loads(said.out)
    assert result["interrupted"]
    (match,) = result["matches"]
    assert list(match["sides"]) == ["0"]
    assert 0 < match["games"] < 10_000
    assert f"Interrupted after {match['games']} of 100000 games: short ones end first." in said.err
