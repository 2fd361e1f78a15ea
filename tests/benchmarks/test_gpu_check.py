"""The check of a GPU, as far as it goes without one."""

from __future__ import annotations

import json
from pathlib import Path

import gpu_check
import pytest
import torch
from measuring import device_groups, device_runs, device_speed
from measuring.device_runs import CPU, check_checkpoints, check_numbers, largest_deviation
from measuring.findings import Finding, table
from simulated_device import DEVICE, SimulatedDevice


@pytest.fixture(autouse=True)
def one_trainer_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take minutes; test_other_devices has them all."""
    monkeypatch.setattr(device_runs, "learning_types", lambda: ["vdn"])


def test_without_a_gpu_it_says_so_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "no CUDA device here; --device cpu" in capsys.readouterr().out


def test_parts_that_need_no_gpu_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = ["numbers", "checkpoints", "transfers", "ranks", "memory"]
    out = tmp_path / "figures.json"
    assert gpu_check.main(["--device", "cpu", "--parts", *parts, "--out", str(out)]) == 0
    found = json.loads(out.read_text())["parts"]
    assert list(found) == parts
    passed = {part: [each["passed"] for each in findings] for part, findings in found.items()}
    assert passed == {
        "numbers": [True], "checkpoints": [True], "transfers": [None], "ranks": [True], "memory": [None],
    }  # fmt: skip
    assert "only CUDA counts what is allocated" in capsys.readouterr().out


def test_the_list_has_a_line_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(gpu_check.PARTS)
    assert all(len(line.split()) > 3 for line in lines)


def test_a_part_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: torch.device):
        yield Finding("first", True)
        raise RuntimeError("CUDA error\nand more")

    monkeypatch.setitem(gpu_check.PARTS, "numbers", broken)
    assert gpu_check.main(["--device", "cpu", "--parts", "numbers"]) == 1
    assert list(gpu_check.run("numbers", CPU))[1] == Finding("error", False, note="RuntimeError: CUDA error")


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.parametrize("check", [check_numbers, check_checkpoints])
def test_networks_on_another_device_are_compared_with_those_of_the_cpu(check) -> None:
    with SimulatedDevice() as simulated:
        (found,) = check(DEVICE)
    assert found.passed
    assert simulated.waits["copy"] > 50  # agents acted there


def test_the_largest_deviation_is_relative_to_large_numbers_only() -> None:
    expected = {"a": torch.tensor([1000.0, 0.0]), "step": 3}
    assert largest_deviation(expected, {"a": torch.tensor([1001.0, 1e-4]), "step": 4}) == pytest.approx(
        1 / 1001
    )
    assert largest_deviation(expected, {"a": expected["a"]}) == float("inf")


def test_every_size_is_a_learner_that_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_speed, "REPETITIONS", 1)
    monkeypatch.setattr(device_speed, "update_s", lambda learner, size, device: float(device == CPU))
    monkeypatch.setattr(device_speed, "device_for", lambda name, device, behavior: behavior() and device)
    monkeypatch.setattr(torch.cuda, "utilization", lambda: 50)
    found = list(device_speed.measure_sizes(DEVICE))
    assert [each.name for each in found] == [size.name for size in device_speed.sizes()]
    assert all(each.passed and each.figures["CPU ms"] == 1000.0 for each in found)


def test_a_size_is_measured_by_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_speed, "REPETITIONS", 1)
    monkeypatch.setattr(device_speed, "STEPS", 256)
    small = {each.name: each for each in device_speed.sizes()}["PPO, 2 x 64 units"]
    monkeypatch.setattr(device_speed, "sizes", lambda: (small,))
    (found,) = device_speed.measure_sizes(CPU)
    assert found.figures["CPU ms"] > 0.0


def test_the_table_has_a_line_for_each_finding() -> None:
    found = {"sizes": [Finding("PPO", False, {"ms": 2.0}, "slow")], "ranks": [Finding("one", None)]}
    head, first, second = table(found).splitlines()
    assert head.split() == ["part", "what", "result", "figures", "note"]
    assert first.split() == ["sizes", "PPO", "FAILED", "ms", "2", "slow"]
    assert second.split() == ["ranks", "one", "skipped"]


def test_groups_are_measured_by_updates_and_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_groups, "UPDATES", 1)
    small = {"batch_size": 64, "buffer_size": 128, "num_epoch": 1, "group_size": 3}
    monkeypatch.setattr(device_groups, "CASES", {"small": ("spread", "mappo", small, 16)})
    (found,) = device_groups.measure_groups(CPU)
    assert found.passed
    assert min(found.figures.values()) > 0.0
