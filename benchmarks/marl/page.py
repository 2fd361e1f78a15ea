"""The page of the scores: a table, the commands behind it, and curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from measuring import score_page
from measuring.score_page import commands, listed, machine, mean, of_row
from measuring.scored_runs import CHECKOUT
from measuring.scores import Score

from marl.opponents import Encounter, tables
from marl.rows import ROWS

KEPT = CHECKOUT / "benchmarks" / "marl" / "scores.jsonl"
ENCOUNTERS = CHECKOUT / "benchmarks" / "marl" / "opponents.jsonl"


def write_page(scores: Sequence[Score], encounters: Sequence[Encounter]) -> None:
    """Writes docs/results/marl.md with its pictures, and docs/results/opponents.md."""
    notes, results = CHECKOUT / "benchmarks" / "marl", CHECKOUT / "docs" / "results"
    pictures = draw(scores, CHECKOUT / "docs" / "images")
    text = (notes / "notes.md").read_text(encoding="utf-8")
    text = text.format(
        table=table(scores),
        commands=commands(ROWS, scores),
        curves="\n".join(f"![{task}](../images/{path.name})\n" for task, path in pictures),
        machine=machine(),
        spread_episodes=f"{ROWS[0].episodes:,}",
    )
    (results / "marl.md").write_text(text, encoding="utf-8")
    text = (notes / "opponents.md").read_text(encoding="utf-8")
    (results / "opponents.md").write_text(text.format(opponents=tables(encounters)), encoding="utf-8")


def table(scores: Iterable[Score]) -> str:
    """A line for each row that was run."""
    lines = [
        "| configuration | scored on | agent steps | seeds | mean ± deviation | asked for | EPyMARL's "
        "| minutes of training |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    scores = list(scores)
    for row in ROWS:
        own = of_row(scores, row.name)
        if not own:
            continue
        values = [score.value for score in own]
        bar = "" if row.bar is None else f"{row.bar:g}"
        published = "" if row.published is None else f"{row.published:.2f}"
        minutes = listed((score.seconds / 60 for score in own), 1)
        lines.append(
            f"| `{row.config_name}` | {row.task}, {row.unit} | {own[0].agent_steps / 1e6:.2g} M | {listed(values, 2)} "
            f"| {mean(values, 2)} | {bar} | {published} | {minutes} |"
        )
    return "\n".join(lines)


def draw(scores: Sequence[Score], images: Path) -> list[tuple[str, Path]]:
    """Curves of every run: a picture or two for each task. Returns those that are there, with their titles."""
    made = []
    for task, picture in dict.fromkeys((row.task, row.picture) for row in ROWS):
        rows = [row for row in ROWS if (row.task, row.picture) == (task, picture)]
        curves = [(row.name, f"C{i}-", of_row(scores, row.name)) for i, row in enumerate(rows)]
        title = f"{task}, {picture}" if picture else task
        path = images / f"marl-{title.replace(' ', '-').replace(',', '')}.png"
        if any(own for _, _, own in curves) and score_page.draw(path, task.removesuffix(", drawn"), curves):
            made.append((title, path))
    return made
