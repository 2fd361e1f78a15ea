"""Turns, opponents and ratings of self-play: by hand, without networks."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_service.config import SelfPlaySettings
from trainer_service.running.behaviors.self_play import SelfPlay, TurnScheduler
from trainer_service.running.collection.opponents import FixedOpponent, Results


def settings(**changes: Any) -> SelfPlaySettings:
    rare = {"save_steps": 10**6, "team_change": 10**6, "swap_steps": 10**6}
    return SelfPlaySettings.model_validate({**rare, **changes})


def fixed_of(rules: SelfPlaySettings) -> list[FixedOpponent]:
    return [FixedOpponent(name, None, rules.initial_elo) for name in rules.fixed_opponents]


def player(scheduler: TurnScheduler, *teams: int, seed: int = 0, **changes: Any) -> SelfPlay:
    rules = settings(**changes)
    made = SelfPlay(rules, scheduler, seed, fixed_of(rules))
    for team in teams:
        made.register_side(team)
    return made


def go_on(*players: SelfPlay, steps: list[int], finished: tuple[SelfPlay, ...] = ()) -> bool:
    """One tick. The weights that a snapshot takes are the step itself."""
    changed = [
        each.advance(step, lambda step=step: {"weights": step}, finished=each in finished)
        for each, step in zip(players, steps, strict=True)
    ]
    for each, step in zip(players, steps, strict=True):
        each.choose_opponents(step)
    return any(changed)


def ring(one: SelfPlay) -> list[int]:
    return [snapshot.weights["weights"] for snapshot in one.snapshots]


def test_a_player_that_leaves_whole_passes_its_turn_on() -> None:
    scheduler = TurnScheduler()
    visitor, walker = player(scheduler, 0), player(scheduler, 1, 2)
    go_on(visitor, walker, steps=[0, 0])
    assert walker.opponent(1) is not None
    assert visitor.leave()
    go_on(walker, steps=[0])
    assert walker.learns(1)
    assert walker.opponent(1) is None
    assert walker.opponent(2) is not None
    assert not walker.leave()
    newcomer = player(scheduler, 5)
    go_on(newcomer, steps=[0])
    assert newcomer.learns(5)


def test_two_behaviors_learn_in_turns_by_their_own_steps() -> None:
    scheduler = TurnScheduler()
    keeper, striker = player(scheduler, 1, team_change=10), player(scheduler, 0, team_change=4)
    turns = []
    steps = [0, 0]
    for _ in range(20):
        changed = go_on(keeper, striker, steps=steps)
        turns.append((scheduler.learning, changed))
        steps[1 - scheduler.learning] += 2  # only who learns moves on
    begins = [at for at, (_, changed) in enumerate(turns) if changed]
    assert begins == [2, 7, 9, 14, 16]
    assert [turns[at][0] for at in begins] == [1, 0, 1, 0, 1]
    assert not keeper.learns(0)
    assert keeper.learns(1)


def test_who_has_nothing_left_to_learn_gets_no_turn() -> None:
    scheduler = TurnScheduler()
    keeper, striker = player(scheduler, 0, team_change=10), player(scheduler, 1, team_change=10)
    go_on(keeper, striker, steps=[0, 0])
    assert go_on(keeper, striker, steps=[3, 0], finished=(keeper,))
    assert scheduler.learning == 1
    assert not go_on(keeper, striker, steps=[3, 20], finished=(keeper,))
    assert scheduler.learning == 1


def test_the_window_holds_the_newest_snapshots() -> None:
    one = player(TurnScheduler(), 0, 1, save_steps=10, window=3)
    held = []
    for step in (0, 9, 10, 12, 25, 34, 35, 50):
        go_on(one, steps=[step])
        held.append(ring(one))
    assert held == [
        [0], [0], [0, 10], [0, 10], [0, 10, 25], [0, 10, 25], [10, 25, 35], [25, 35, 50]
    ]  # fmt: skip


def test_opponents_act_as_the_first_snapshot_until_a_swap() -> None:
    one = player(TurnScheduler(), 0, 1, save_steps=10, swap_steps=20, play_against_latest_model_ratio=1.0)
    met: list[Any] = []
    for step in (0, 10, 20, 30):
        one.ghost_steps = step
        go_on(one, steps=[step])
        opponent = one.opponent(1)
        met.append(None if opponent is None else opponent.step)
    assert met == [0, 0, None, None]
    assert one.opponent(0) is None, "who learns plays as the newest policy"


def test_a_win_against_an_equal_snapshot_moves_half_a_point() -> None:
    one = player(TurnScheduler(), 0, 1, initial_elo=1000.0)
    go_on(one, steps=[0])
    assert one.rate([1.0]) == [1000.5]
    assert one.snapshots[0].rating == 999.5
    (second,) = one.rate([0.5])
    # A draw with somebody one point weaker costs a little: 1 / (1 + 10^(−1/400)) − 1/2.
    assert second - 1000.5 == pytest.approx(-0.00143911, abs=1e-7)


def test_several_opponents_count_by_their_mean_rating() -> None:
    scheduler = TurnScheduler()
    one = player(scheduler, 0)
    weak, strong = player(scheduler, 1, initial_elo=1000.0), player(scheduler, 2, initial_elo=1800.0)
    go_on(one, weak, strong, steps=[0, 0, 0])
    (rating,) = one.rate([1.0])
    # Their mean is 1400: the weaker side wins once in 1 + 10^½ = 4.162 games.
    assert rating - 1200.0 == pytest.approx(1 - 1 / (1 + 10**0.5))
    assert weak.rating_of(1) == pytest.approx(1000.0 - (rating - 1200.0) / 2)
    assert strong.rating_of(2) == pytest.approx(1800.0 - (rating - 1200.0) / 2)


def test_going_on_from_a_state_is_as_never_having_stopped() -> None:
    def live(one: SelfPlay, ticks: range) -> list[Any]:
        seen: list[Any] = []
        for at in ticks:
            one.ghost_steps += 3
            go_on(one, steps=[2 * at])
            ratings = one.rate([1.0, 0.5][: at % 3])
            opponents = [one.opponent(team) for team in (0, 1, 2)]
            seen.append((ratings, [each and (each.step, each.rating) for each in opponents], ring(one)))
        return seen

    rules: dict[str, Any] = {"save_steps": 5, "team_change": 30, "swap_steps": 7, "window": 2, "seed": 5}
    straight = player(TurnScheduler(), 0, 1, 2, **rules)
    live(straight, range(40))
    resumed = SelfPlay(settings(**{k: v for k, v in rules.items() if k != "seed"}), TurnScheduler(), 5)
    resumed.load_state_dict(straight.state_dict())
    for team in (2, 0, 1):
        resumed.register_side(team)
    expected = live(straight, range(40, 90))
    assert any(opponent for _, opponents, _ in expected for opponent in opponents)
    assert live(resumed, range(40, 90)) == expected


def test_a_team_without_players_has_no_turn() -> None:
    scheduler = TurnScheduler()
    one = player(scheduler, 0, 1, 7, team_change=10)
    go_on(one, steps=[0])
    assert not one.remove_side(7)
    learning = []
    for step in range(0, 50, 5):
        go_on(one, steps=[step])
        learning.append(scheduler.learning)
    assert learning == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert one.remove_side(0)
    assert scheduler.learning == 1
    assert not one.remove_side(1)  # who is alone stays
    assert scheduler.learning == 1
    one.register_side(0)
    go_on(one, steps=[55])
    assert one.opponent(0) is not None


def met(one: SelfPlay, swaps: int, team: int = 1) -> dict[str, float]:
    """How often a team acts as each opponent, over so many swaps."""
    names: list[str] = []
    for _ in range(swaps):
        one.ghost_steps += 1
        one.choose_opponents(0)
        opponent = one.opponent(team)
        names.append(
            str(getattr(opponent, "step", None)) if opponent in one.snapshots else one.opponent_in_words(team)
        )
    return {name: names.count(name) / swaps for name in sorted(set(names))}


def test_opponents_are_drawn_by_their_weights() -> None:
    weights = {"self": 1, "random": 2, "expert": 1}
    one = player(TurnScheduler(), 0, 1, save_steps=1, window=2, swap_steps=1, opponents=weights)
    for step in range(3):
        go_on(one, steps=[step])
    found = met(one, 4000)
    # The newest policy is every second one; of the rest snapshots share a quarter, and random has half.
    expected = {"latest": 0.5, "1": 0.0625, "2": 0.0625, "random": 0.25, "expert": 0.125}
    assert found == pytest.approx(expected, abs=0.03)


def test_who_wins_is_met_more_often_in_a_league() -> None:
    rules: dict[str, Any] = {
        "swap_steps": 1,
        "play_against_latest_model_ratio": 0.0,
        "pfsp_weighting": "hard",
    }
    of_league = settings(opponents=["self", "random", "expert"], **rules)
    chance, expert = fixed_of(of_league)
    one = SelfPlay(of_league, TurnScheduler(), 0, [chance, expert])
    for team in (0, 1):
        one.register_side(team)
    go_on(one, steps=[0])
    chance.results, expert.results = Results(games=10.0, won=9.0), Results(games=10.0, won=0.0)
    # Weights (1 − p)²: 0.01 for random, 1 for the expert, 0.25 for the snapshot that nobody has played against.
    assert met(one, 4000) == pytest.approx(
        {"0": 0.25 / 1.26, "expert": 1 / 1.26, "random": 0.01 / 1.26}, abs=0.03
    )


def test_results_count_for_whom_the_learner_met_and_fade() -> None:
    one = player(TurnScheduler(), 0, 1, opponents=["expert"])
    go_on(one, steps=[0])
    one.rate([1.0, 0.5])
    opponent = one.opponent(1)
    assert isinstance(opponent, FixedOpponent)
    # 0.99 · 1 + 1 games, of which 0.99 · 1 + ½ were won.
    assert opponent.results == Results(games=pytest.approx(1.99), won=pytest.approx(1.49))
    assert opponent.results.win_rate == pytest.approx(1.49 / 1.99)
    assert opponent.rating == pytest.approx(1200.0 - (one.rating - 1200.0))


def test_an_opponent_that_left_the_pool_is_replaced() -> None:
    one = player(TurnScheduler(), 0, 1, opponents=["random"])
    go_on(one, steps=[0])
    resumed = player(TurnScheduler(), 0, 1, opponents=["expert"])
    resumed.load_state_dict(one.state_dict())
    go_on(resumed, steps=[0])
    assert resumed.opponent_in_words(1) == "expert"
