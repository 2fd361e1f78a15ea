"""Ours and XuanCe in the same time: the runs, and the table of their scores."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from scores.rows import ROWS, Row

from measuring.report import aligned
from measuring.scenes import CHECKOUT
from measuring.timed import Spent, run_timed

ALGORITHMS = {
    "mappo": "spread_mappo",
    "ippo": "spread_ippo",
    "coma": "spread_coma",
    "iql": "spread_idqn",
    "vdn": "spread_vdn",
    "qmix": "spread_qmix",
    "maddpg": "spread_maddpg",
}
"""XuanCe's names, and those of our rows."""

Training = Literal["sim", "pettingzoo"]
"""The environment of our training."""

_MPE2 = "pettingzoo:mpe2.simple_spread_v3"
_ITS_BEHAVIOR = "simple_spread_v3"
_START_UP_S = 300.0
_SCORING_S = 1800.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    algorithm: str
    seed: int
    trainer: Literal["ours", "xuance"]

    seconds: float
    """Ours from the start of the process, XuanCe's from the first step."""

    cpu_seconds: float
    """Of training, on all cores, start-up included: what each really got of a machine that others use, too."""

    agent_steps: int

    mean: float
    """P: the return of an agent in an episode of 25 steps, played greedily on mpe2."""

    deviation: float
    """Of single episodes; ours counts an agent's return as one, XuanCe's driver the mean of three."""

    episodes: int
    actions: str = "discrete"


def run_ours(
    algorithm: str,
    seed: int,
    seconds: float,
    episodes: int,
    trained_on: Training,
    threads: int,
    scratch: Path,
) -> Outcome:
    """Trains one of our rows for so many seconds, and scores it.

    Raises:
        RunFailed: a command did not come to its end.
    """
    row = our_row(algorithm, episodes, trained_on)
    config = settings(CHECKOUT / row.config, trained_on)
    own = scratch / "config.yaml"
    own.write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {**variables(threads), "PYTHONPATH": str(CHECKOUT)}
    results = f"--results-dir={scratch}"
    learn, _, *rest = row.learn("run", seed)
    python = [sys.executable, "-m", "trainer_service"]
    spent = run_timed(
        [*python, learn, str(own), *rest, results, "--torch-device=cpu"],
        scratch,
        environment,
        interrupt_after_s=seconds,
    )
    evaluate, *rest = row.evaluate("run")  # what follows --env-args is the simulator's
    run_timed([*python, evaluate, results, *rest], scratch, environment, limit_s=_SCORING_S)
    said = last_json((scratch / "log.txt").read_text(encoding="utf-8"))
    return of_ours(algorithm, seed, spent, row, said)


def run_xuance(
    python: Path, algorithm: str, seed: int, seconds: float, episodes: int, threads: int, scratch: Path
) -> Outcome:
    """Lets XuanCe train for so many seconds, and score.

    Raises:
        RunFailed: its driver did not come to its end.
    """
    result = scratch / "result.json"
    driver = CHECKOUT / "benchmarks" / "measuring" / "xuance_driver.py"
    command = [
        str(python), str(driver), algorithm, f"--seconds={seconds}", f"--episodes={episodes}", f"--seed={seed}",
        f"--result={result}",
    ]  # fmt: skip
    run_timed(command, scratch, variables(threads), limit_s=seconds + _START_UP_S + _SCORING_S)
    return of_xuance(algorithm, seed, json.loads(result.read_text(encoding="utf-8")))


def our_row(algorithm: str, episodes: int, trained_on: Training) -> Row:
    """Our row for an algorithm of XuanCe's, with its environment and number of scored episodes."""
    row = next(row for row in ROWS if row.name == ALGORITHMS[algorithm])
    return replace(row, episodes=episodes, trained_on=_MPE2 if trained_on == "pettingzoo" else row.trained_on)


def settings(config: Path, trained_on: Training) -> dict[str, Any]:
    """A row's settings. What trains on mpe2 itself learns under the name that its agents have there."""
    document: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8"))
    if trained_on == "sim":
        return document
    (learned,) = document["behaviors"].values()
    return {**document, "behaviors": {_ITS_BEHAVIOR: learned}}


def of_ours(algorithm: str, seed: int, spent: Spent, row: Row, said: Mapping[str, Any]) -> Outcome:
    """Returns our outcome. said: the output of ``evaluate --json``."""
    (behavior,) = said["behaviors"].values()
    return Outcome(
        algorithm,
        seed,
        "ours",
        spent.seconds,
        spent.cpu_seconds,
        int(said["step"]),
        row.score(said),
        float(behavior["std_return"]),
        row.episodes,
    )


def of_xuance(algorithm: str, seed: int, said: Mapping[str, Any]) -> Outcome:
    """Returns XuanCe's outcome. said: the output of its driver."""
    return Outcome(
        algorithm,
        seed,
        "xuance",
        float(said["seconds"]),
        float(said["cpu_seconds"]),
        int(said["agent_steps"]),
        float(said["mean_return"]),
        float(said["std_return"]),
        int(said["episodes"]),
        str(said["actions"]),
    )


def last_json(text: str) -> dict[str, Any]:
    """The JSON document that a log ends with. Raises ValueError if it ends with none."""
    decoder = json.JSONDecoder()
    for place, _ in enumerate(text):
        if text[place] == "{" and (place == 0 or text[place - 1] == "\n"):
            document, end = decoder.raw_decode(text[place:])
            if not text[place + end :].strip() and isinstance(document, dict):
                return document
    raise ValueError(f"no JSON at the end of:\n{text[-500:]}")


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each algorithm and seed, in the order they were run."""
    runs: dict[tuple[str, int], dict[str, Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault((outcome.algorithm, outcome.seed), {})[outcome.trainer] = outcome
    rows: list[tuple[str, ...]] = [
        (
            "algorithm", "seed",
            "ours: seconds", "CPU s", "agent steps", "P",
            "XuanCe: seconds", "CPU s", "agent steps", "P", "actions",
        )
    ]  # fmt: skip
    for (algorithm, seed), sides in runs.items():
        theirs = sides.get("xuance")
        cells = (*_cells(sides.get("ours")), *_cells(theirs), "-" if theirs is None else theirs.actions)
        rows.append((algorithm, str(seed), *cells))
    return "\n".join(aligned(rows))


def variables(threads: int) -> dict[str, str]:
    """The environment both get.

    Args:
        threads: of torch; 0 leaves that to torch.
    """
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")
    }
    # Beside the driver lie files of ours that must not be taken for modules that XuanCe imports.
    kept["PYTHONSAFEPATH"] = "1"
    return {**kept, "OMP_NUM_THREADS": str(threads)} if threads else kept


def _cells(outcome: Outcome | None) -> tuple[str, str, str, str]:
    if outcome is None:
        return "-", "-", "-", "-"
    return (
        f"{outcome.seconds:.0f}",
        f"{outcome.cpu_seconds:.0f}",
        f"{outcome.agent_steps:,}",
        f"{outcome.mean:.2f}",
    )
