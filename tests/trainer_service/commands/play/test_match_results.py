"""What is printed of matches: games that decide, and games that the clock ends."""

from __future__ import annotations

import pytest

from trainer_service.commands.play.match_results import Match, print_matches
from trainer_service.config import parse_player
from trainer_service.running.evaluation.match import Games
from trainer_service.running.evaluation.players import Player

A, B, C = (Player(parse_player(text)) for text in ("one", "two", "random"))


def undecided(mine: float, theirs: float) -> Games:
    """Two games that the clock ended, with returns around these."""
    return Games((0.5, 0.5), 2, (mine - 1.0, mine + 1.0), (theirs, theirs), (25, 25))


HUNT = [
    Match(A, B, {"hunter": undecided(10.0, -9.0), "prey": undecided(-7.0, 8.0)}),
    Match(A, C, {"hunter": undecided(30.0, -28.0), "prey": undecided(-2.0, 3.0)}),
    Match(B, C, {"hunter": undecided(20.0, -19.0), "prey": undecided(-4.0, 5.0)}),
]


def test_one_match_by_the_clock_has_returns_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_matches("sim:hunt", HUNT[:1], [])
    assert (
        capsys.readouterr().out.splitlines()
        == [
            "one against two on sim:hunt",
            "  4 games, none of which terminated: compare the returns",
            "  mean return 1.500 ± 8.559, theirs -0.500 ± 8.500",  # of 9, 11, -8 and -6: √73.25; of -9, -9, 8 and 8
            "  as hunter: mean return 10.000 ± 1.000, theirs -9.000 ± 0.000",
            "  as prey: mean return -7.000 ± 1.000, theirs 8.000 ± 0.000",
        ]
    )


def test_one_match_that_is_decided_has_win_rates(capsys: pytest.CaptureFixture[str]) -> None:
    sides = {
        "0": Games((1.0, 0.5), 1, (1.0, 0.0), (-1.0, 0.0)),
        "1": Games((1.0, 0.0), 0, (1.0, -1.0), (-1.0, 1.0)),
    }
    print_matches("sim:duel", [Match(A, B, sides)], [])
    said = capsys.readouterr().out
    assert "4 games: 2 won, 1 drawn (1 of them interrupted), 1 lost" in said
    assert "win rate 62.5%" in said
    assert "as team 0: 1 won, 1 drawn, 0 lost, win rate 75.0%, mean return 0.500, theirs -0.500" in said


def test_a_cross_play_by_the_clock_is_a_table_of_returns_for_each_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_matches("sim:hunt", HUNT, [A.name, B.name, C.name])
    said = capsys.readouterr().out
    assert "win rate" not in said
    blocks = [block.split("\n") for block in said.strip().split("\n\n")]
    assert [line.split() for line in blocks[0][1:3]] == [
        ["against", "as", "games", "return", "theirs"],
        ["one", "two", "hunter", "2", "10.000", "±", "1.000", "-9.000", "±", "0.000"],
    ]
    assert [[line.split() for line in block] for block in blocks[1:]] == [
        [
            ["Mean", "returns", "as", "hunter,", "of", "rows", "against", "columns:"],
            ["one", "two", "random"],
            ["one", "–", "10.000", "30.000"],
            ["two", "8.000", "–", "20.000"],
            ["random", "3.000", "5.000", "–"],
        ],
        [
            ["Mean", "returns", "as", "prey,", "of", "rows", "against", "columns:"],
            ["one", "two", "random"],
            ["one", "–", "-7.000", "-2.000"],
            ["two", "-9.000", "–", "-4.000"],
            ["random", "-28.000", "-19.000", "–"],
        ],
    ]


def test_a_cross_play_that_is_decided_is_a_table_of_win_rates(capsys: pytest.CaptureFixture[str]) -> None:
    won = Match(A, B, {"0": Games((1.0, 1.0), 0, (1.0, 1.0), (-1.0, -1.0))})
    print_matches("sim:duel", [won, *HUNT[1:]], [A.name, B.name, C.name])
    said = capsys.readouterr().out
    assert "Win rates of rows against columns:" in said
    assert ["two", "0.0%", "–", "50.0%", "25.0%"] in [line.split() for line in said.splitlines()]


def test_an_interrupted_cross_play_has_no_mean_of_players_without_games(
    capsys: pytest.CaptureFixture[str],
) -> None:
    won = Match(A, B, {"0": Games((1.0,), 0, (1.0,), (-1.0,), (9,))})
    print_matches("sim:duel", [won, HUNT[1]], [A.name, B.name, C.name, parse_player("expert")])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["expert", "–", "–", "–", "–", "–"]
