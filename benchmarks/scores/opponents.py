"""Tasks whose sides learn against each other, and what each learner's side earned from each other's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scores.rows import COMPARED

RANDOM = "random"

_HERE = Path(__file__).parent
ENCOUNTERS = _HERE / "opponents.jsonl"


@dataclass(frozen=True, slots=True)
class Task:
    """One environment, and the configurations of its trained opponents."""

    name: str
    env: str
    configs: Mapping[str, str]
    """By learner."""

    behaviors: Mapping[str, str] = field(default_factory=dict)
    """Where a side is of several behaviors: what agents are called there, by pattern, and their teams."""

    sides: Mapping[str, str] = field(default_factory=dict)
    """Names of those teams."""

    def learn(self, learner: str, seed: int) -> list[str]:
        """Arguments of the command that trains one."""
        run_id = self.run_id(learner, seed)
        return ["learn", self.configs[learner], f"--run-id={run_id}", f"--env={self.env}", f"--seed={seed}"]

    def evaluate(self, learner: str, seed: int, episodes: int) -> list[str]:
        """Arguments of the command by which one plays everyone, itself and chance included, on either side."""
        player = learner if learner == RANDOM else self.run_id(learner, seed)
        others = [self.run_id(other, seed) for other in self.configs]
        everyone = others if learner == RANDOM else [*others, RANDOM]
        teams = ",".join(f"{agents}={behavior}" for agents, behavior in self.behaviors.items())
        return [
            "evaluate", player, "--against", *everyone, f"--env={self.env}", f"--episodes={episodes}", "--json",
            "--env-args", "--copies", "50", *(["--behaviors", teams] if teams else []),
        ]  # fmt: skip

    def run_id(self, learner: str, seed: int) -> str:
        return f"{self.name}_{learner}-{seed}"


def _task(name: str, env: str, others: Sequence[str], **teams: Mapping[str, str]) -> Task:
    configs = {learner: f"{COMPARED}/{name}_{learner}.yaml" for learner in others}
    configs |= {learner: f"configs/{name}_{learner}.yaml" for learner in ("mappo", "maddpg")}
    return Task(name, f"pettingzoo:mpe2.{env}", configs, **teams)


TASKS = (
    _task("adversary", "simple_adversary_v3", ("ippo", "vdn", "qmix")),
    _task("push", "simple_push_v3", ("ippo", "dqn")),
    _task("tag", "simple_tag_v3", ("ippo", "vdn", "qmix")),
    _task(
        "world_comm", "simple_world_comm_v3", ("ippo", "vdn", "qmix"),
        behaviors={
            "leadadversary_*": "simple_world_comm_v3_leadadversary?team=0",
            "adversary_*": "simple_world_comm_v3_adversary?team=0",
            "agent_*": "simple_world_comm_v3_agent?team=1",
        },
        sides={"0": "simple_world_comm_v3_adversary", "1": "simple_world_comm_v3_agent"},
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Encounter:
    """The mean return of a learner's side against another learner on the other side, over some games."""

    task: str
    side: str
    learner: str
    opponent: str
    seed: int
    games: int
    mean_return: float
    """Of the whole side: the sum over its agents."""


def encounters_of(task: Task, learner: str, seed: int, said: Mapping[str, Any]) -> list[Encounter]:
    """Returns the games in the output of ``evaluate --against --json``."""
    found = []
    for match in said["matches"]:
        opponent = match["opponent"].removeprefix(f"{task.name}_").removesuffix(f"-{seed}")
        for side, games in match["sides"].items():
            found.append(
                Encounter(
                    task.name,
                    task.sides.get(side, side),
                    learner,
                    opponent,
                    seed,
                    games["games"],
                    games["mean_return"],
                )
            )
    return found


def encounter_of(text: str) -> Encounter:
    """The one that a JSON object tells of."""
    return Encounter(**json.loads(text))


def merged(known: Iterable[Encounter], new: Iterable[Encounter]) -> list[Encounter]:
    """Known games without those of newly played tasks and seeds, whose players have changed, and the new ones."""
    new = list(new)
    anew = {(each.task, each.seed) for each in new}
    return sorted([*(each for each in known if (each.task, each.seed) not in anew), *new])


def tables(encounters: Iterable[Encounter]) -> str:
    """A table for each task and side: what rows earned from columns."""
    encounters = list(encounters)
    parts = []
    for task in TASKS:
        own = [each for each in encounters if each.task == task.name]
        parts += [_table(task, side, own) for side in sorted({each.side for each in own})]
    return "\n\n".join(parts)


def _table(task: Task, side: str, encounters: Iterable[Encounter]) -> str:
    """Means over seeds. The last column is the mean over opponents that learned, with its deviation between seeds."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for each in encounters:
        if each.side == side:
            found.setdefault((each.learner, each.opponent), {})[each.seed] = each.mean_return
    everyone = [*task.configs, RANDOM]
    lines = [
        f"| `{side}` | {' | '.join(everyone)} | trained opponents |",
        f"| --- |{' --- |' * (len(everyone) + 1)}",
    ]
    for learner in everyone:
        cells = [found.get((learner, opponent), {}) for opponent in everyone]
        shown = " | ".join(_number(statistics.mean(cell.values())) if cell else "" for cell in cells)
        lines.append(f"| {learner} | {shown} | {_over_seeds(cells[:-1])} |")
    return "\n".join(lines)


def _over_seeds(cells: Sequence[Mapping[int, float]]) -> str:
    """The mean over opponents, then over the seeds that have played all of them, with the deviation between seeds."""
    seeds = set.intersection(*(set(cell) for cell in cells))
    means = [statistics.mean(cell[seed] for cell in cells) for seed in sorted(seeds)]
    if not means:
        return ""
    spread = f" ± {statistics.stdev(means):.1f}" if len(means) > 1 else ""
    return _number(statistics.mean(means)) + spread


def _number(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")


def write_page(encounters: Sequence[Encounter]) -> None:
    """Writes docs/results/opponents.md."""
    text = (_HERE / "opponents.md").read_text(encoding="utf-8").format(opponents=tables(encounters))
    (_HERE.parents[1] / "docs" / "results" / "opponents.md").write_text(text, encoding="utf-8")
