from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from learning.cases import NUMBERS, POCA, PPO, SAC, Case, cases
from learning.results import Episode, Result, ResultFile, final_mean, read_episodes, steps_to
from learning.running import measured, write_run
from learning.table import page, plain, short
from learning.worlds import World

from trainer_service.config import TrainerSettings

CASE = Case(name="some_test[discrete]", world=World(discrete=1), settings=PPO, threshold=0.9)
SIDES = World(discrete=1, behaviors=("Line?team=0", "Line?team=1"))
BOTH = Case(name="some_ghost[discrete]", world=SIDES, settings=PPO, threshold=0.9)
ONE = Case(name="some_ghost_fails[discrete]", world=SIDES, settings=PPO, threshold=0.9, one_fails=True)


def result(seed: int = 1, **fields) -> Result:
    told = {"final": 1.0, "passed": True, "steps_to_threshold": 200, "seconds": 3.0}
    return Result(**{"case": CASE.name, "seed": seed, **told, **fields})


def episodes(*returns: float) -> list[Episode]:
    return [Episode(10 * number, return_) for number, return_ in enumerate(returns, 1)]


def test_the_last_five_returns_count() -> None:
    assert final_mean(episodes(-9, 1, 1, 1, 1, 0)) == pytest.approx(0.8)
    assert final_mean(episodes(1, 1, 1, 1)) is None


def test_the_threshold_is_reached_when_five_returns_first_exceed_it() -> None:
    #                          five end with:  0.8  0.9  1.0  0.8
    assert steps_to(0.9, episodes(0.5, 0.5, 1, 1, 1, 1, 1, 0)) == 70
    assert steps_to(1.0, episodes(1, 1, 1, 1, 1)) is None


def test_a_run_passes_if_it_ends_above_the_threshold() -> None:
    good = episodes(1, 1, 1, 1, 1)
    assert measured(CASE, 1, good, 1.0, None).passed
    assert not measured(CASE, 1, good, 1.0, "its simulator left").passed
    assert not measured(CASE, 1, episodes(*[0.9] * 5), 1.0, None).passed
    assert not measured(CASE, 1, episodes(1, 1), 1.0, None).passed


def of_sides(first: float, second: float) -> list[Episode]:
    """Five episodes of each, of ten steps and of twenty."""
    told = [Episode(10 * number, first, 0) for number in range(1, 6)]
    return told + [Episode(20 * number, second, 1) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("first", "second", "both", "one"),
    [(1.0, 1.0, True, False), (1.0, 0.5, False, True), (0.5, 1.0, False, True), (0.5, 0.5, False, False)],
)
def test_of_two_sides_both_must_learn_it_or_exactly_one(first, second, both, one) -> None:
    played = of_sides(first, second)
    assert measured(BOTH, 1, played, 1.0, None).passed == both
    assert measured(ONE, 1, played, 1.0, None).passed == one
    assert not measured(BOTH, 1, played, 1.0, "its simulator left").passed
    result = measured(BOTH, 1, played, 1.0, None)
    assert (result.final, result.other_final) == (first, second)


def test_a_side_that_hardly_played_decides_against_a_run() -> None:
    assert not measured(BOTH, 1, of_sides(1.0, 1.0)[:-1], 1.0, None).passed
    assert not measured(ONE, 1, of_sides(1.0, 0.5)[:-1], 1.0, None).passed


def test_of_two_sides_the_later_reaches_the_threshold_for_both() -> None:
    assert measured(BOTH, 1, of_sides(1.0, 1.0), 1.0, None).steps_to_threshold == 100
    assert measured(BOTH, 1, of_sides(1.0, 0.5), 1.0, None).steps_to_threshold is None
    assert measured(ONE, 1, of_sides(0.5, 1.0), 1.0, None).steps_to_threshold == 100
    assert measured(ONE, 1, of_sides(0.5, 0.5), 1.0, None).steps_to_threshold is None


def test_without_a_threshold_a_run_only_has_to_end() -> None:
    case = Case(name="some_test", world=World(discrete=1), settings=PPO, threshold=None)
    assert measured(case, 1, episodes(-1), 1.0, None).passed
    assert not measured(case, 1, episodes(*[1] * 9), 1.0, "its simulator left").passed
    assert measured(case, 1, episodes(*[1] * 9), 1.0, None).steps_to_threshold is None


def test_every_behavior_of_a_world_is_configured(tmp_path: Path) -> None:
    asymmetric = World(discrete=1, behaviors=("Line?team=0", "Opponent?team=1"))
    for world, names in ((SIDES, ["Line"]), (asymmetric, ["Line", "Opponent"])):
        write_run(Case(name="some", world=world, settings=PPO, threshold=0.9), tmp_path)
        written = yaml.safe_load((tmp_path / "config.yaml").read_text())
        assert written == {"behaviors": dict.fromkeys(names, PPO)}


def test_episodes_are_read_as_a_world_writes_them(tmp_path: Path) -> None:
    (tmp_path / "episodes").write_text("0 5 1.02\n1 12 -0.5\n")
    assert read_episodes(tmp_path / "episodes") == [Episode(5, 1.02, 0), Episode(12, -0.5, 1)]
    assert read_episodes(tmp_path / "none") == []


def test_results_survive_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    ResultFile(path, resume=False).add(result())
    with path.open("a") as file:
        file.write('{"case": "half')
    assert ResultFile(path, resume=True).read() == [result()]
    assert ResultFile(path, resume=False).read() == []


def test_no_two_tests_have_one_name() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_settings_of_every_test_are_valid(case: Case) -> None:
    settings = TrainerSettings.model_validate(case.settings)
    # Every key that is said to differ is one that the trainer understands, wherever it stands.
    assert set(case.changes) <= set(_keys(settings.model_dump()))


def _keys(section: object) -> list[str]:
    if not isinstance(section, dict):
        return []
    return [*section, *(key for value in section.values() for key in _keys(value))]


def test_only_what_differs_from_the_common_settings_is_told() -> None:
    (recurrent,) = (case for case in cases() if case.name == "recurrent_sac[continuous]")
    assert recurrent.world == World(continuous=NUMBERS[0], fades=True, step_size=0.5)
    assert recurrent.changes == {
        "learning_rate": 3e-4,
        "batch_size": 256,
        "buffer_init_steps": 1000,
        "steps_per_update": 2,
        "memory_size": 16,
        "sequence_length": 16,
        "max_steps": 4000,
    }
    assert "memory" not in SAC["network_settings"]


def test_tests_of_groups_share_what_those_of_ppo_share() -> None:
    (simple,) = (case for case in cases() if case.name == "simple_poca[discrete, 2 agents]")
    assert simple.settings["trainer_type"] == "poca"
    assert simple.changes == {}
    assert {**POCA, "trainer_type": "ppo"} == PPO


def test_settings_are_told_in_short() -> None:
    settings = {"learning_rate": 3e-4, "gail": {"gamma": 0.8}, "shared_critic": True}
    assert short(settings) == "learning_rate 0.0003, gail (gamma 0.8), shared_critic true"


def test_the_page_counts_what_passed_and_lists_seeds_in_order() -> None:
    results = [result(2, passed=False, final=0.5, steps_to_threshold=None), result(1)]
    text = page([CASE], results, seeds=[1, 2], versions={"torch": "2"}, date="2026-01-01")
    assert "**1 of 2 runs passed.** 0 of 1 tests passed with every seed they were run with;" in text
    assert "2026-01-01; torch 2." in text
    assert "| some_test[discrete] |  | 0.9 | 1 of 2 | 200 · – | 1.00 · 0.50 | 3 |" in text
    assert "with every seed yet" not in text


def test_the_page_says_which_tests_lack_a_seed() -> None:
    said = {"seeds": [1, 2], "versions": {"torch": "2"}, "date": "2026-01-01"}
    text = page([CASE, BOTH, ONE], [result(1), result(2), result(1, case=BOTH.name)], **said)
    assert "Not every variant was run with every seed yet: `some_ghost`, `some_ghost_fails`." in text


def test_the_page_shows_both_sides_and_their_thresholds() -> None:
    none = Case(name="some_test[none]", world=World(discrete=1), settings=PPO, threshold=None)
    results = [
        result(case=BOTH.name, final=1.0, other_final=0.5),
        result(case=ONE.name, final=1.0, other_final=None),
        result(case=none.name, steps_to_threshold=None),
    ]
    text = page([BOTH, ONE, none], results, seeds=[1], versions={"torch": "2"}, date="2026-01-01")
    assert "| some_ghost[discrete] |  | 0.9 | 1 of 1 | 200 | 1.00 & 0.50 | 3 |" in text
    assert (
        "| some_ghost_fails[discrete] |  | one above 0.9, one below | 1 of 1 | 200 | 1.00 & – | 3 |" in text
    )
    assert "| some_test[none] |  | none | 1 of 1 | – | 1.00 | 3 |" in text


def test_a_terminal_gets_the_tests_that_ran() -> None:
    assert len(plain([CASE], [result()]).splitlines()) == 2
    assert len(plain([CASE], []).splitlines()) == 1


@pytest.fixture
def script(repository: Path):
    path = repository / "benchmarks" / "learning_results.py"
    spec = importlib.util.spec_from_file_location("learning_results", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tests_are_found_by_a_part_of_their_name(script) -> None:
    name = "visual_ppo[discrete, 2 pictures]"
    assert all(script.fits(name, pattern) for pattern in (None, "ppo[", "visual*2 pic", "[discrete"))
    assert not any(script.fits(name, pattern) for pattern in ("sac", "ppo[continuous", "[visual]"))


def test_what_was_done_is_not_done_again(script, tmp_path: Path, capsys) -> None:
    kept = tmp_path / "results.jsonl"
    for name in ("simple_ppo[discrete]", "simple_ppo[continuous]"):
        line = json.dumps({**asdict(result()), "case": name})
        kept.write_text((kept.read_text() if kept.exists() else "") + line + "\n")
    code = script.main(["--only=simple_ppo", "--seeds=1", "--resume", "--json", f"--results={kept}"])
    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [each["case"] for each in said] == ["simple_ppo[discrete]", "simple_ppo[continuous]"]


def test_a_report_runs_nothing(script, tmp_path: Path, capsys) -> None:
    code = script.main(["--only=simple_ppo", "--report", "--json", f"--results={tmp_path / 'none.jsonl'}"])
    assert (code, json.loads(capsys.readouterr().out)) == (0, [])


def test_a_pattern_without_tests_is_told(script, capsys) -> None:
    assert script.main(["--only=simple_poo"]) == 2
    assert "simple_poo" in capsys.readouterr().err
