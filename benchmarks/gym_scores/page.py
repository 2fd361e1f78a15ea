"""The page of the scores on Gymnasium: a table, the commands behind it, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from measuring import score_page
from measuring.score_page import commands, listed, machine, mean, of_row
from measuring.scored_runs import CHECKOUT
from measuring.scores import Score

from gym_scores.rows import ROWS


def write_page(scores: Sequence[Score]) -> None:
    """Writes docs/results/gym.md and its pictures."""
    notes = (CHECKOUT / "benchmarks" / "gym_scores" / "notes.md").read_text(encoding="utf-8")
    pictures = draw(scores, CHECKOUT / "docs" / "images")
    text = notes.format(
        table=table(scores),
        commands=commands(ROWS, scores),
        curves="\n".join(f"![{path.stem}](../images/{path.name})\n" for path in pictures),
        machine=machine(),
        episodes=ROWS[0].episodes,
    )
    (CHECKOUT / "docs" / "results" / "gym.md").write_text(text, encoding="utf-8")


def table(scores: Sequence[Score]) -> str:
    """A line for each row that was run."""
    lines = [
        "| configuration | environment | agent steps | seeds | mean ± deviation | Stable-Baselines3 here | published "
        "| minutes of training | of SB3 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        own, theirs = of_row(scores, row.name), of_row(scores, row.peer)
        if not own and not theirs:
            continue
        values = [score.value for score in own]
        steps = (own or theirs)[0].agent_steps / 1e6
        lines.append(
            f"| `{row.name}` | {row.task}, {row.learner} | {steps:.2g} M | {listed(values, 0)} | {mean(values, 0)} "
            f"| {listed([score.value for score in theirs], 0)} | {row.published:.0f} ({row.published_for}) "
            f"| {_minutes(own)} | {_minutes(theirs)} |"
        )
    return "\n".join(lines)


def draw(scores: Sequence[Score], images: Path) -> list[Path]:
    """Curves of every run: a picture for each environment. The peer's are dotted, where they were kept."""
    made = []
    for task in dict.fromkeys(row.task for row in ROWS):
        curves = []
        for i, row in enumerate(row for row in ROWS if row.task == task):
            theirs = [score for score in of_row(scores, row.peer) if score.curve]
            curves += [(row.learner, f"C{i}-", of_row(scores, row.name))]
            curves += [(f"{row.learner} of SB3", f"C{i}:", theirs)]
        path = images / f"gym-{task.lower()}.png"
        if any(own for _, _, own in curves[::2]) and score_page.draw(path, task, curves):
            made.append(path)
    return made


def _minutes(scores: Sequence[Score]) -> str:
    return listed((score.seconds / 60 for score in scores), 0)
