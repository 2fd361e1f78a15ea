"""The page of the scores: three tables, the runs and commands behind them, and curves."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from scores import curves
from scores.curves import listed, mean, of_row
from scores.record import Score
from scores.rows import GROUPS, ROWS, SCENES, SINGLE, Row

_HERE = Path(__file__).parent
_DOCS = _HERE.parents[1] / "docs"

AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"

EQUAL_STEPS = 0.9
"""The share of the published score's steps from which on a row that is behind is compared with it."""


def write_page(scores: Sequence[Score]) -> None:
    """Writes docs/results/scores.md and its pictures."""
    pictures = draw(scores, _DOCS / "images")
    text = (_HERE / "page.md").read_text(encoding="utf-8").format(
        groups=table(GROUPS, scores),
        single=table(SINGLE, scores),
        scenes=table(SCENES, scores),
        standings=standings(ROWS, scores),
        hours=sum(score.seconds for score in scores) / 3600,
        runs=runs(scores),
        commands=commands(ROWS, scores),
        curves="\n".join(f"![{title}](../images/{path.name})\n" for title, path in pictures),
        made_with=made_with(scores),
    )  # fmt: skip
    (_DOCS / "results" / "scores.md").write_text(text, encoding="utf-8")


def table(rows: Iterable[Row], scores: Sequence[Score]) -> str:
    """The score of each row beside the published one."""
    lines = [
        "| configuration | scored on | agent steps | mean ± deviation | published | compared |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = _cells(row, of_row(scores, row.name), of_row(scores, row.peer))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(row: Row, own: Sequence[Score], peer: Sequence[Score]) -> Iterable[str]:
    values = [score.value for score in own]
    beside = []
    if (published := row.published) is not None:
        spread = f" ± {published.deviation:.{row.digits}f}" if published.deviation else ""
        value = f"{published.score:.{row.digits}f}{spread}"
        beside.append(f"{value} ({published.source}, {published.millions:g} M)")
    if peer:
        beside.append(f"{mean([score.value for score in peer], row.digits)} ({row.rival} here)")
    yield f"`{row.config_name}`"
    yield f"{row.task}, {row.unit}" if row.unit != "agent" else row.task
    yield f"{own[0].agent_steps / 1e6:.2g} M" if own else "not run"
    yield mean(values, row.digits)
    yield "; ".join(beside)
    yield standing(row, own)


def runs(scores: Sequence[Score]) -> str:
    """The seeds of each row, and what made them."""
    lines = ["| row | seeds | minutes | CPU minutes | weights |", "| --- | --- | --- | --- | --- |"]
    for row in ROWS:
        if own := of_row(scores, row.name):
            values = listed((score.value for score in own), row.digits)
            minutes = listed((score.seconds / 60 for score in own), 1)
            cpus = listed((score.cpu_minutes for score in own if score.cpu_minutes is not None), 1)
            weights = ", ".join(f"`{score.weights[:8]}`" for score in own if score.weights)
            lines.append(f"| `{row.name}` | {values} | {minutes} | {cpus} | {weights} |")
    return "\n".join(lines)


def standing(row: Row, own: Sequence[Score]) -> str:
    """Ahead of the published score, behind it, or level: equal as far as it is printed, or within a deviation of seeds.

    If the row has less than nine tenths of the published score's steps, and is behind, its share of them is named.
    """
    if row.published is None or not own:
        return ""
    values = [score.value for score in own]
    difference = statistics.mean(values) - row.published.score
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    if abs(difference) <= max(deviation, row.published.deviation, 0.5 * 10.0**-row.digits):
        return LEVEL
    if difference > 0:
        return AHEAD
    share = own[0].agent_steps / (row.published.millions * 1e6)
    return BEHIND if share >= EQUAL_STEPS else f"{BEHIND}, with {100 * share:.0f} % of the steps"


def standings(rows: Iterable[Row], scores: Sequence[Score]) -> str:
    """How many rows are ahead, level and behind, of those with equal steps or fewer."""
    told = Counter(standing(row, of_row(scores, row.name)) for row in rows)
    ahead, level, behind = (told[name] for name in (AHEAD, LEVEL, BEHIND))
    fewer = sum(count for name, count in told.items() if name.startswith(f"{BEHIND},"))
    return (
        f"Of the {ahead + level + behind} rows that can be compared with a published score, {ahead} are ahead, {level} "
        f"level and {behind} behind. Another {fewer} are behind and had fewer steps."
    )


def commands(rows: Iterable[Row], scores: Iterable[Score]) -> str:
    """The commands of one seed of each row with runs."""
    there = {score.row for score in scores}
    lines = [
        each for row in rows if row.name in there for each in (row.learn(row.name, 1), row.evaluate(row.name))
    ]
    return "\n".join(f"mlagents-style {shlex.join(line)}" for line in lines)


def made_with(scores: Iterable[Score]) -> str:
    """A line for each kind of machine and set of versions that a hash of weights holds for."""
    kinds: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for score in scores:
        if score.weights:
            kinds.setdefault(tuple(score.made_with.items()), []).append(f"`{score.row}` {score.seed}")
    return "\n".join(
        f"- {', '.join(runs)}: {', '.join(f'{name} {value}' for name, value in kind)}."
        for kind, runs in kinds.items()
    )


def draw(scores: Sequence[Score], images: Path) -> list[tuple[str, Path]]:
    """Curves of every run: a picture or two for each task. Returns the existing ones, with their titles."""
    made = []
    for task, picture in dict.fromkeys((row.task, row.picture) for row in ROWS):
        rows = [row for row in ROWS if (row.task, row.picture) == (task, picture)]
        lines = [(row.name, f"C{i}-", of_row(scores, row.name)) for i, row in enumerate(rows)]
        peers = [(row.peer, f"C{i}:", of_row(scores, row.peer)) for i, row in enumerate(rows)]
        title = f"{task}, {picture}" if picture else task
        path = images / f"scores-{title.lower().replace(' ', '-').replace(',', '')}.png"
        if curves.draw(path, title.removesuffix(", drawn"), [*lines, *peers]):
            made.append((title, path))
    return made
