from __future__ import annotations

from pathlib import Path

from trainer_service.config import check_files


def test_each_file_gets_one_line_and_the_details_behind_it(tmp_path: Path) -> None:
    texts = {
        "good": "behaviors: {A: {}}",
        "odd": "behaviors: {A: {framework: x}, B: {trainer_type: poca}}",
        "bad": "behaviors: {A: {max_stepz: 1, time_horizon: 0}}",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in (*texts, "missing")]

    good, odd, bad, missing = check_files(paths)

    assert [str(check) for check in (good, odd, bad, missing)] == [
        f"{tmp_path / 'good'}: ok",
        f"{tmp_path / 'odd'}: ok (1 warning)",
        f"{tmp_path / 'bad'}: 2 errors",
        f"{tmp_path / 'missing'}: 1 error",
    ]
    assert [check.ok for check in (good, odd, bad, missing)] == [True, True, False, False]
    assert good.details == ()
    assert [line.removeprefix(str(tmp_path / "odd")) for line in odd.details] == [
        ":1: behaviors.A.framework: deprecated and ignored: PyTorch is the only framework",
    ]
    assert len(bad.details) == 2


def test_a_file_whose_run_ends_before_its_first_update_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("behaviors: {A: {max_steps: 100}}", encoding="utf-8")
    (check,) = check_files([path])
    assert check.ok
    (warning,) = check.warnings
    assert warning.startswith(f"{path}: behaviors.A.max_steps: 100 ends the run before the first update")
