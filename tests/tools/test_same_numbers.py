"""Two recordings say the same where every number is the same, under whatever name; and where one is not, which."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loaded_files import module_of

from trainer_service.config import parse_run_options
from trainer_service.running.runs.tensor_file import write_values

TOOL = module_of(Path(__file__).parents[2] / "tools" / "same_numbers.py")


def checkpoint() -> dict[str, Any]:
    weights = {"body.weight": torch.arange(6.0).reshape(2, 3), "body.bias": torch.ones(2)}
    return {"step": 40, "algorithm": {"network": weights, "optimizer": {"steps": 8, "mean": torch.zeros(8)}}}


def recorded(
    out: Path, content: dict[str, Any] | None = None, *, loss: str = "value_loss", rate: float = 0.5
) -> Path:
    """A recording of one run, with metrics of a loss of that name and a last learning rate."""
    folder = out / "run" / "run"
    (folder / "Ball").mkdir(parents=True)
    lines = [
        {"behavior": "Ball", "step": step, "wall_s": hash(out), loss: step / 7, "learning_rate": rate_then}
        for step, rate_then in ((20, 0.9), (40, rate))
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (folder / "Ball" / "checkpoint.safetensors").open("wb") as file:
        write_values(content or checkpoint(), file)
    rows = {"saved.rows.steps": np.array([[0, 3, 40, 9, 9], [3, 5, 20, 9, 9]])}
    np.savez(folder / "Ball" / "replay.npz", counters=np.arange(3), **rows)
    np.savez(folder / "Ball" / "replay-40-steps-0.npz", rewards=np.arange(3.0))
    np.savez(folder / "Ball" / "replay-20-steps-3.npz", rewards=np.arange(3.0, 5.0))
    return out


@pytest.fixture
def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    old = recorded(tmp_path / "old")

    def run(new: Path, *flags: str) -> tuple[int, str]:
        code = TOOL.main(["compare", str(old), str(new), *flags])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


def test_equal_runs_compare_equal_whatever_their_duration(compare, tmp_path: Path) -> None:
    code, output = compare(recorded(tmp_path / "new"))
    assert (code, output) == (0, "run: the same\n1 of 1 runs say the same.\n")


def test_one_changed_bit_of_a_tensor_is_named(compare, tmp_path: Path) -> None:
    content = checkpoint()
    content["algorithm"]["network"]["body.weight"].view(torch.int32)[1, 1] ^= 1
    code, output = compare(recorded(tmp_path / "new", content))
    assert code == 1
    assert "run: DIFFERS" in output
    (line,) = [line for line in output.splitlines() if "expected" in line]
    assert line.startswith(
        "  run/Ball/checkpoint.safetensors: algorithm/network/body.weight: expected float32 [2, 3] ["
    )
    assert ", came float32 [2, 3] [" in line
    assert "0 of 1 runs say the same." in output


def test_renamed_keys_and_tags_are_listed_and_are_no_difference(compare, tmp_path: Path) -> None:
    content = checkpoint()
    network = content["algorithm"].pop("network")
    content["algorithm"]["networks"] = {
        "trunk.weight": network["body.weight"],
        "trunk.bias": network["body.bias"],
    }
    new = recorded(tmp_path / "new", content, loss="critic_loss")
    code, output = compare(new)
    assert code == 0
    assert "  renamed: algorithm/network/body.weight -> algorithm/networks/trunk.weight\n" in output
    assert "  renamed: algorithm/network/body.bias -> algorithm/networks/trunk.bias\n" in output
    assert "  renamed: Ball/value_loss -> Ball/critic_loss\n" in output
    meant = tmp_path / "renamed.txt"
    meant.write_text("network/body. networks/trunk.\n\nvalue_loss critic_loss\n")
    assert compare(new, "--renamed", str(meant)) == (0, "run: the same\n1 of 1 runs say the same.\n")


def test_missing_file_or_run_is_a_difference(compare, tmp_path: Path) -> None:
    new = recorded(tmp_path / "new")
    (new / "run" / "run" / "Ball" / "replay.npz").unlink()
    code, output = compare(new)
    assert code == 1
    assert "run/Ball/replay.npz: is missing" in output
    (tmp_path / "empty").mkdir()
    code, output = compare(tmp_path / "empty")
    assert code == 1
    assert "is missing" in output


def test_every_run_is_one_that_the_trainer_would_take() -> None:
    for name, run in TOOL.read_runs().items():
        given = {key: value for key, value in run.items() if key not in ("env", "before", "longer")}
        assert parse_run_options(given).options.behaviors, name
