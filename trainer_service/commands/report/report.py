"""A page on one run in a single file: curves, scores, film, configuration, timers and how it ended."""

from __future__ import annotations

import base64
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

import numpy as np

from trainer_service._version import __version__
from trainer_service.commands.common.curves import Curve
from trainer_service.commands.common.run_record import OURS, RunRecord, is_number
from trainer_service.commands.report.elements import element, folded, page, table
from trainer_service.commands.report.line_chart import Line, line_chart
from trainer_service.commands.status.run_status import BehaviorProgress, Ending, RunStatus, run_status
from trainer_service.errors import UserError, suggested_command
from trainer_service.running.metrics import format_duration, format_return, read_rows
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.layout import BEST, RunLayout

LARGEST_FILM = 8 * 2**20
"""Limit of the bytes of a film in the page, so that it can still be mailed."""

_LARGEST_CONFIGURATION = 2**18
_MOST_CHARTS = 60
"""Limit of the charts of one behavior: simulators may report a thousand names."""

_MOST_TIMERS = 300
_RETURNS: Mapping[str, str] = {
    "mean_return": "mean return",
    "mean_group_return": "mean return of groups",
    "evaluation/mean_return": "in evaluations",
    "evaluation/mean_group_return": "of groups in evaluations",
}
_SPEED = "steps_per_s"
_TITLES: Mapping[str, str] = {
    "elo": "Elo rating",
    "mean_length": "Episode length",
    _SPEED: "Agent steps per second",
}
_UNSEEN = ("evaluation/", "std_return")
"""Beginnings of the metrics that stand elsewhere in the page."""

_METADATA: Mapping[str, str] = {
    "start_time_seconds": "Started",
    "end_time_seconds": "Ended",
    "command_line_arguments": "Command",
}
_NO_METADATA = frozenset({"timer_format_version", "stats_format_version", "end", "ended_by"})

_ENDINGS: Mapping[Ending, str] = {
    Ending.RUNNING: "It was still running when this page was made.",
    Ending.NOTHING: "There is no summary and no checkpoint: it ended before the first one, or just began.",
    Ending.FINISHED: "It used all of its steps.",
    Ending.STOPPED: "It was stopped, by hand or by a rule, before its steps were used; all that it learned is saved.",
    Ending.BROKEN_OFF: "It ended without its last save: killed or cut off. --resume continues what was saved last.",
    Ending.FAILED: "An error ended it; all that it had learned is saved.",
    Ending.UNKNOWN: "It is still running, or was broken off: ML-Agents writes down its end only.",
}
_RESUMABLE = frozenset({Ending.STOPPED, Ending.BROKEN_OFF, Ending.FAILED})


def write_report(run: RunRecord, output: Path) -> None:
    """Writes the page. Raises SaveError."""
    text = report(run, datetime.datetime.now(), output.parent)
    write_atomic(output, text.encode("utf-8", "backslashreplace"))


def report(run: RunRecord, now: datetime.datetime, folder: Path | None = None) -> str:
    """The text of the page on a run, finished or not.

    Args:
        run: the run.
        now: when the page is made.
        folder: where the page will lie, from which it links to films; None is the run's own folder.
    """
    status = run_status(run)
    style = files("trainer_service.commands.report").joinpath("report.css").read_text(encoding="utf-8")
    several = len(status.behaviors) > 1
    return page(
        run.name,
        style,
        _header(run, status, now),
        *(
            part
            for name in status.behaviors
            for part in _behavior(run, status.behaviors[name], name, several)
        ),
        *_film(run.path),
        *_all_films(run.path, folder or run.path),
        *_complaints(status),
        *_timers(status.timers),
        *_configuration(RunLayout(run.path).configuration),
        *_made_by(status),
    )


def _header(run: RunRecord, status: RunStatus, now: datetime.datetime) -> Element:
    ending = status.ending
    environment = (run.options or {}).get("env_settings")
    env = environment.get("env_path") if isinstance(environment, dict) else None
    steps = sum(each.step for each in status.behaviors.values())
    facts = {
        "Environment": "–" if run.options is None else str(env or "simulators that attached"),
        "Agent steps": f"{steps:,}",
        "Time": format_duration(status.seconds),
        "Seed": "–" if run.seed is None else str(run.seed),
        "Trainer": run.trainer,
    }
    return element(
        "header",
        element("h1", run.name),
        element(
            "p",
            element("span", ending.value, class_=f"state {ending.name.partition('_')[0].lower()}"),
            f" {_ENDINGS[ending]}",
        ),
        *(
            [element("p", f"Ended by {status.ended_by}")]
            if status.ended_by and ending is not Ending.FINISHED
            else []
        ),
        *_go_on(run, ending),
        _facts(facts),
        element("p", f"Made on {now:%Y-%m-%d at %H:%M}.", class_="soft"),
    )


def _go_on(run: RunRecord, ending: Ending) -> Iterator[Element]:
    """The command that resumes a run that ended early."""
    if ending not in _RESUMABLE or run.trainer != OURS or run.options is None:
        return
    environment, saved = (run.options.get(key) for key in ("env_settings", "checkpoint_settings"))
    env = environment.get("env_path") if isinstance(environment, dict) else None
    if str(env or "").startswith("python:"):  # an object, which no command line can name
        yield element("p", "To continue: train(…, resume=True) in Python, with the same environment.")
        return
    before = saved if isinstance(saved, dict) else {}
    words = [str(RunLayout(run.path).configuration), "--resume"]
    if before.get("run_id") != run.name:
        words += ["--run-id", run.name]
    if Path(str(before.get("results_dir", "results"))) != run.path.parent:
        words += ["--results-dir", str(run.path.parent)]
    yield element("p", "To continue: ", element("code", suggested_command("learn", *words)))


def _behavior(run: RunRecord, progress: BehaviorProgress, name: str, several: bool) -> Iterator[Element]:
    curves = run.curves.get(name, {})
    yield element("h2", name if several else f"Behavior {name}")
    yield _facts(dict(_behavior_facts(run, progress, name)))
    evaluations = [row for row in read_rows(RunLayout(run.path).evaluations) if row.get("behavior") == name]
    if not curves:
        yield element("p", "No summary was written yet.", class_="soft")
    else:
        yield element("div", *_main_charts(curves), class_="charts")
        others = [key for key in curves if _is_other(key)]
        if others:
            charts = [_chart(_titled(key), {key: curves[key]}) for key in others[:_MOST_CHARTS]]
            title = "1 other metric" if len(others) == 1 else f"All {len(others)} other metrics"
            yield folded(title, element("div", *charts, class_="charts"))
        if len(others) > _MOST_CHARTS:
            left = len(others) - _MOST_CHARTS
            yield element("p", f"{left} metrics more are in metrics.jsonl.", class_="soft")
    if evaluations:
        yield element("h3", "Evaluations")
        yield _evaluations(evaluations)
        yield from _best_policy(run, name, evaluations)


def _behavior_facts(run: RunRecord, progress: BehaviorProgress, name: str) -> Iterator[tuple[str, str]]:
    curves = run.curves.get(name, {})
    trainer = run.setting(name, "trainer_type")
    if trainer is not None:
        yield "Trainer type", str(trainer)
    budget = "" if progress.max_steps is None else f" of {progress.max_steps:,}"
    yield "Agent steps", f"{progress.step:,}{budget}"
    for key, title in _RETURNS.items():
        if key in curves:
            yield f"{title[0].upper()}{title[1:]}, at the end", _text(curves[key].final)
    if (elo := curves["elo"].values[-1] if "elo" in curves else progress.elo) is not None:
        yield "Elo rating", f"{elo:.0f}"
    yield "Newest numbered checkpoint", "none" if progress.saved_step is None else f"{progress.saved_step:,}"


def _main_charts(curves: Mapping[str, Curve]) -> Iterator[Element]:
    returns = {key: curves[key] for key in _RETURNS if key in curves}
    if returns:
        yield _chart("Return", returns, curves.get("std_return"))
    members = {key: curve for key, curve in curves.items() if key.startswith("member_returns/")}
    if members:
        yield _chart("Mean return of each behavior", members)
    for key, title in _TITLES.items():
        if key in curves:
            yield _chart(title, {key: curves[key]})


def _is_other(key: str) -> bool:
    shown = key in _RETURNS or key in _TITLES or key.startswith("member_returns/")
    return not shown and not key.startswith(_UNSEEN)


def _titled(key: str) -> str:
    return key if "/" in key else key.replace("_", " ").capitalize()


def _chart(title: str, curves: Mapping[str, Curve], deviation: Curve | None = None) -> Element:
    """A chart with its title. deviation: of the episodes behind each point of the first curve, for a band around it."""
    lines = [
        Line(_RETURNS.get(key, key.removeprefix("member_returns/")), curve.steps, curve.values)
        for key, curve in curves.items()
    ]
    first = next(iter(curves.values()))
    if deviation is not None and np.array_equal(deviation.steps, first.steps):
        name = f"{lines[0].name} ± deviation of its episodes"
        lines[0] = Line(name, first.steps, first.values, spread=deviation.values)
    return element("div", element("h3", title), line_chart(lines, title, from_zero=title == _TITLES[_SPEED]))


def _best_policy(run: RunRecord, name: str, evaluations: Sequence[Mapping[str, Any]]) -> Iterator[Element]:
    """Where the policy is that scored best, and how to evaluate it."""
    best = next((row for row in reversed(evaluations) if row.get("best") is True), None)
    layout = RunLayout(run.path)
    file = layout.states(BEST).get(name)
    if best is None or file is None:
        return
    words = ["evaluate", run.name, "--checkpoint", "best"]
    if run.path.parent != Path("results"):
        words += ["--results-dir", str(run.path.parent)]
    score = (
        best.get("mean_group_return") if is_number(best.get("mean_group_return")) else best.get("mean_return")
    )
    yield element(
        "p",
        f"Best policy: {_text(score)} at step {_count(best.get('step'))}, in {file.relative_to(run.path)}. Again: ",
        element("code", suggested_command(*words)),
    )


def _evaluations(rows: Sequence[Mapping[str, Any]]) -> Element:
    groups = any(is_number(row.get("mean_group_return")) for row in rows)
    header = (
        "Agent steps",
        "Mean return",
        "Deviation",
        *(["Of groups"] if groups else []),
        "Length",
        "Episodes",
        "",
    )
    keys = ("mean_return", "std_return", *(["mean_group_return"] if groups else []))
    cells = [
        (
            _count(row.get("step")),
            *(_text(row.get(key)) for key in keys),
            _count(row.get("mean_length"), digits=1),
            _count(row.get("episodes")),
            "best so far" if row.get("best") is True else "",
        )
        for row in rows
    ]
    return table(header, *cells)


def _film(path: Path) -> Iterator[Element]:
    """The newest film that a page has room for."""
    films = RunLayout(path).films()
    for step, film in reversed(films.items()):
        try:
            gif = film.read_bytes() if film.stat().st_size <= LARGEST_FILM else b""
        except OSError:
            continue
        if gif.startswith(b"GIF8"):
            yield element("h2", f"Film at step {step:,}")
            source = f"data:image/gif;base64,{base64.b64encode(gif).decode()}"
            yield element("img", src=source, alt=f"The best episode of the evaluation at step {step:,}")
            return
    if films:
        yield element("h2", "Film")
        megabytes = LARGEST_FILM / 2**20
        yield element(
            "p",
            f"None of {', '.join(film.name for film in films.values())} is a GIF of at most {megabytes:.0f} MiB.",
        )


def _all_films(path: Path, folder: Path) -> Iterator[Element]:
    """Links to the films beside the page; dead where it was mailed without them."""
    if films := RunLayout(path).films():
        links = [_link(film, folder, f"step {step:,}") for step, film in films.items()]
        parts = [part for link in links for part in (", ", link)][1:]
        yield element("p", "Films in the run's folder: ", *parts, class_="soft")


def _link(file: Path, folder: Path, text: str) -> Element:
    """A link to a file from a page in a folder."""
    try:
        address = quote(Path(os.path.relpath(file, folder)).as_posix())
    except ValueError:  # another drive of Windows
        address = file.resolve().as_uri()
    return element("a", text, href=address)


def _complaints(status: RunStatus) -> Iterator[Element]:
    if status.complaints:
        yield element("h2", "Warnings")
        rows = [(text, f"{count:,}") for text, count in status.complaints.items()]
        yield table(("What", "Count"), *rows, class_="texts")


def _timers(timers: Mapping[str, Any]) -> Iterator[Element]:
    if not is_number(timers.get("total")):
        return
    yield element("h2", "Where the time went")
    yield _timer_table(timers)
    processes = timers.get("processes")
    for name, own in processes.items() if isinstance(processes, dict) else ():
        if isinstance(own, dict):
            yield folded(str(name), _timer_table(own))


def _timer_table(root: Mapping[str, Any]) -> Element:
    rows = list(_timer_rows("all", root, float(root.get("total") or 0.0), 0))[:_MOST_TIMERS]
    return table(("Block", "Seconds", "Share", "", "Count"), *rows)


def _timer_rows(
    name: str, block: Mapping[str, Any], whole: float, depth: int
) -> Iterator[tuple[Element | str, ...]]:
    total = block.get("total")
    if not is_number(total) or depth > 20:
        return
    share = min(max(total / whole, 0.0), 1.0) if whole > 0 else 0.0
    bar = element("span", element("b", style=f"width:{share:.1%}"), class_="share")
    label = element("span", name, style=f"padding-left:{1.2 * depth:.1f}em")
    yield label, f"{total:,.2f}", f"{share:.1%}", bar, _count(block.get("count"))
    children = block.get("children")
    own = children.items() if isinstance(children, dict) else ()
    known = [
        (str(key), child) for key, child in own if isinstance(child, dict) and is_number(child.get("total"))
    ]
    for key, child in sorted(known, key=lambda item: -item[1]["total"]):
        yield from _timer_rows(key, child, whole, depth + 1)


def _configuration(path: Path) -> Iterator[Element]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_CONFIGURATION).decode("utf-8", "replace")
    except OSError:
        return
    yield element("h2", "Configuration")
    yield folded("configuration.yaml", element("pre", text))


def _made_by(status: RunStatus) -> Iterator[Element]:
    told = {key: value for key, value in status.metadata.items() if key not in _NO_METADATA}
    rows = [(_METADATA.get(key, _titled(key)), _time(key, value)) for key, value in told.items()]
    if rows:
        yield element("h2", "Versions and times")
        yield table(("", ""), *rows, class_="texts")
    yield element("p", f"Page by trainer-service {__version__}.", class_="soft")


def _facts(facts: Mapping[str, str]) -> Element:
    pairs = [element("div", element("dt", key), element("dd", value)) for key, value in facts.items()]
    return element("dl", *pairs, class_="facts")


def _time(key: str, value: str) -> str:
    """A value of the metadata; points of time in words."""
    if not key.endswith("_time_seconds"):
        return value
    try:
        return datetime.datetime.fromtimestamp(float(value), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return value


def _text(value: Any) -> str:
    return format_return(float(value)) if is_number(value) else "–"


def _count(value: Any, *, digits: int = 0) -> str:
    return f"{value:,.{digits}f}" if is_number(value) else "–"


def require_output(output: Path) -> None:
    """Raises UserError where a page cannot be written there: it is a folder."""
    if output.is_dir():
        raise UserError(
            f"--to: '{output}' is a folder; expected the name of a file, such as {output / 'report.html'}"
        )
