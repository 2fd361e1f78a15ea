"""Runs are grouped by what they have in common, and their figures agree with numbers worked on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.compare.comparison import Comparison, compare
from trainer_service.commands.compare.grouping import GroupBy, differing_settings, group_runs
from trainer_service.errors import UserError

MakeRun = Callable[..., Path]


def groups_of(paths: Sequence[Path], by: GroupBy = "config") -> dict[str, list[str]]:
    return {group.name: [run.name for run in group.runs] for group in group_runs([*map(read_run, paths)], by)}


def comparison_of(*paths: Path, **how: Any) -> Comparison:
    usual = dict.fromkeys(("metric", "behavior", "threshold", "until"))
    return compare(group_runs([*map(read_run, paths)], "config"), **{**usual, **how})


def test_runs_that_differ_in_seeds_only_are_one_group(make_run: MakeRun) -> None:
    fast = [make_run(f"fast-seed{i}", seed=i, settings={"max_steps": 5}) for i in (1, 2)]
    slow = make_run("slow", seed=1, settings={"max_steps": 9})
    assert groups_of([*fast, slow]) == {"fast": ["fast-seed1", "fast-seed2"], "slow": ["slow"]}


def test_seeds_of_lessons_and_the_place_of_simulators_do_not_part_runs(make_run: MakeRun) -> None:
    runs = [make_run(name) for name in ("a1", "a2")]
    for i, run in enumerate(runs):
        written = yaml.safe_load((run / "configuration.yaml").read_text())
        written["environment_parameters"] = {"size": {"sampler_parameters": {"seed": i, "min_value": 1}}}
        written["debug"] = bool(i)
        written["env_settings"]["isolate"] = (True, "auto")[i]
        (run / "configuration.yaml").write_text(yaml.safe_dump(written))
    assert groups_of(runs) == {"a": ["a1", "a2"]}


def test_settings_in_which_groups_differ_are_listed(make_run: MakeRun) -> None:
    one = make_run("one", seed=1, settings={"hyperparameters": {"beta": 1, "lambd": 2}, "memory": None})
    other = make_run("other", seed=2, settings={"hyperparameters": {"beta": 3, "lambd": 2.0}})
    found = differing_settings(group_runs([read_run(one), read_run(other)], "config"))
    assert found == {
        "behaviors.Ball.hyperparameters.beta": ("1", "3"),
        "behaviors.Ball.memory": ("None", "–"),
    }


def test_scores_of_a_group(make_run: MakeRun) -> None:
    # Heights over the 100 steps that all have: 5, 10 and 30.
    ends = {"a1": 10.0, "a2": 20.0, "a3": 60.0}
    runs = [
        make_run(name, [(100, 1.0, 0.0), (200, 3.0, end)], seed=i)
        for i, (name, end) in enumerate(ends.items())
    ]
    found = comparison_of(*runs, threshold=15.0)
    (score,) = found.behaviors["Ball"]
    assert (score.group, found.metrics) == ("a", {"Ball": "mean_return"})
    assert score.final == (30.0, 10.0, 60.0)
    assert score.area == (15.0, 5.0, 30.0)
    assert (score.num_reached, score.steps_to_threshold, score.seconds_to_threshold) == (2, 200.0, 3.0)
    assert score.improvement is None


def test_thresholds_that_half_of_the_runs_never_reach(make_run: MakeRun) -> None:
    runs = [make_run(f"a{i}", [(10, 1.0, float(i))], seed=i) for i in range(4)]
    (score,) = comparison_of(*runs, threshold=2.0).behaviors["Ball"]
    assert (score.num_reached, score.steps_to_threshold) == (2, float("inf"))


def test_groups_are_compared_with_the_first(make_run: MakeRun) -> None:
    first = [make_run(f"a{i}", [(10, 1.0, float(i))], seed=i) for i in range(5)]
    second = [make_run(f"b{i}", [(10, 1.0, 2.0)], seed=i, settings={"max_steps": 7}) for i in range(5)]
    _, score = comparison_of(*first, *second).behaviors["Ball"]
    assert score.improvement is not None
    assert score.improvement.value == 0.5
    assert 0.0 < score.improvement.low < 0.5 < score.improvement.high < 1.0


@pytest.mark.parametrize(
    ("value", "words"), [(9.0, "all 9 pairs"), (-9.0, "none of 9 pairs"), (1.0, "4.5 of 9 pairs")]
)
def test_few_runs_have_a_count_of_pairs_in_place_of_an_interval(
    value: float, words: str, make_run: MakeRun
) -> None:
    first = [make_run(f"a{i}", [(10, 1.0, float(i))], seed=i) for i in range(3)]
    second = [make_run(f"b{i}", [(10, 1.0, value)], seed=i, settings={"max_steps": 7}) for i in range(3)]
    found = comparison_of(*first, *second)
    _, score = found.behaviors["Ball"]
    assert score.improvement is not None
    assert np.isnan([score.improvement.low, score.improvement.high]).all()
    told = f"Ball: b ends above a in {words}; 3 + 3 runs are too few for an interval of P(above)."
    assert told in found.notes


def test_unequal_lengths_are_said_and_can_be_cut(make_run: MakeRun) -> None:
    short = make_run("short", [(10, 1.0, 1.0), (20, 2.0, 2.0)])
    long = make_run("long", [(10, 1.0, 1.0), (20, 2.0, 3.0), (40, 4.0, 9.0)], settings={"max_steps": 7})
    found = comparison_of(short, long)
    assert [score.final.value for score in found.behaviors["Ball"]] == [2.0, 9.0]
    assert any("--until 20" in note for note in found.notes)
    cut = comparison_of(short, long, until=20)
    assert [score.final.value for score in cut.behaviors["Ball"]] == [2.0, 3.0]
    assert not any("--until" in note for note in cut.notes)


def test_group_returns_count_where_all_runs_have_them(make_run: MakeRun) -> None:
    def run(name: str, group_return: float | None) -> Path:
        row = {"behavior": "Ball", "step": 10, "wall_s": 1.0, "mean_return": 1.0}
        return make_run(name, rows=[{**row, "mean_group_return": group_return}])

    one, two, alone = run("one", 5.0), run("two", 6.0), run("alone", None)
    assert comparison_of(one, two).metrics == {"Ball": "mean_group_return"}
    assert comparison_of(one, alone).metrics == {"Ball": "mean_return"}


def test_runs_without_summaries_are_left_out_and_named(make_run: MakeRun) -> None:
    found = comparison_of(make_run("new"), make_run("old", [(10, 1.0, 3.0)], settings={"max_steps": 3}))
    assert [score.group for score in found.behaviors["Ball"]] == ["old"]
    assert [group.name for group in found.groups] == ["old"]
    assert "Ball: 'new' left out, without any value of mean_return." in found.notes


def test_runs_with_one_seed_are_no_independent_samples(make_run: MakeRun) -> None:
    found = comparison_of(*(make_run(name, [(10, 1.0, 3.0)], seed=5) for name in ("a1", "a2")))
    assert any("two runs have one seed" in note for note in found.notes)


def test_several_behaviors_are_compared_one_by_one(make_run: MakeRun) -> None:
    row = {"behavior": "Cat", "step": 10, "wall_s": 1.0, "mean_return": 4.0}
    both, ball = make_run("both", [(10, 1.0, 1.0)], rows=[row]), make_run("ball", [(10, 1.0, 1.0)])
    assert [*comparison_of(both).behaviors] == ["Ball", "Cat"]
    assert [*comparison_of(both, ball).behaviors] == ["Ball"]
    assert [*comparison_of(both, ball, behavior="Cat").behaviors] == ["Cat"]


def test_what_cannot_be_compared_is_named(make_run: MakeRun) -> None:
    ball = make_run("ball", [(10, 1.0, 1.0)])
    cat = make_run("cat", [(10, 1.0, 1.0)], behavior="Cat")
    with pytest.raises(UserError, match=r"no behavior in common: 'ball' has Ball; 'cat' has Cat"):
        comparison_of(ball, cat)
    with pytest.raises(UserError, match=r"no run has a behavior 'Dog': 'ball' has Ball"):
        comparison_of(ball, behavior="Dog")
    with pytest.raises(UserError, match=r"'mean_retrun' of behavior 'Ball' \(did you mean 'mean_return'\?\)"):
        comparison_of(ball, metric="mean_retrun")
    with pytest.raises(UserError, match=r"'new': no summary was written yet"):
        comparison_of(make_run("new"))
    with pytest.raises(UserError, match=r"no run has a value of 'mean_return' up to step 9"):
        comparison_of(ball, until=9)
