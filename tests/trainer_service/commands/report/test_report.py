"""The page on a run tells how it stands, needs nothing beside it, and takes every text for text."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from run_files import write_end

from trainer_service.commands.common.run_record import ML_AGENTS, RunRecord, read_run
from trainer_service.commands.report import report as report_module
from trainer_service.commands.report.report import report
from trainer_service.commands.status.run_status import Ending, run_status
from trainer_service.running.runs.lock import FileLock

MakeRun = Callable[..., Path]

NOON = datetime.datetime(2026, 1, 2, 12, 0)
SUMMARIES = [(100, 1.0, 0.5), (200, 2.0, 1.5)]
EVIL = "<script>document.documentElement.style.background='#00ff00'</script>"
VOID = {"meta", "img"}


class Page(HTMLParser):
    """A page as a parser understands it. Fails where an element is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"] and data.strip():
            self.texts.append(data.strip())

    def addresses(self) -> Iterator[str]:
        for _, attributes in self.tags:
            yield from (
                str(attributes[name])[:22] for name in ("src", "href", "srcset") if name in attributes
            )


def page_of(run: Path) -> Page:
    return Page(report(read_run(run), NOON))


def finish(run: Path, steps: int, *, behavior: str = "Ball") -> None:
    """Lets a run have saved its last checkpoint, and its timers."""
    write_end(run, **{behavior: steps})
    update = {"total": 4.0, "count": 3, "children": {}}
    metadata = {
        "python_version": "3.11.7",
        "start_time_seconds": 0,
        "command_line_arguments": EVIL,
        "ended_by": EVIL,
    }
    timers = {"total": 8.0, "count": 1, "children": {"act": {"total": 2.0, "count": 40}, "update": update}}
    (run / "run_logs" / "timers.json").write_text(json.dumps({**timers, "metadata": metadata}))


def add_film(run: Path, step: int, size: tuple[int, int] = (64, 48)) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", size, (255, 0, 255)).save(made, "GIF")
    (run / f"film-{step}.gif").write_bytes(made.getvalue())
    return made.getvalue()


def test_a_run_shows_all_that_it_has(make_run: MakeRun) -> None:
    row = {"behavior": "Ball", "step": 200, "wall_s": 2.0, "elo": 1234.0, "policy_loss": 0.25}
    rows = [{**row, "replaced_values": 3}]
    run = make_run("mine", SUMMARIES, seed=7, settings={"max_steps": 300}, rows=rows)
    finish(run, 200)
    add_film(run, 100)
    score = {"step": 200, "mean_return": 1.75, "std_return": 0.5, "mean_length": 9.0, "episodes": 20}
    text = json.dumps({"behavior": "Ball", **score, "best": True})
    (run / "evaluations.jsonl").write_text(f"{text}\n", encoding="utf-8")
    page = page_of(run)
    assert f"Ended by {EVIL}" in page.texts
    assert {
        "mine", "stopped early", "sim:3dball", "7", "200 of 300", "Made on 2026-01-02 at 12:00.",
        "Return", "Elo rating", "1234", "Policy loss", "1.500", "1.750", "0.500", "9.0", "20", "best so far",
        "Film at step 100", "update", "50.0%", "25.0%", "3.11.7", "1970-01-01 00:00:00 UTC",
        "rewards and observed values that were no numbers, and became 0", "3",
    } <= {*page.texts}  # fmt: skip
    assert any("max_steps: 300" in text for text in page.texts), "its configuration"
    polylines = [attributes for tag, attributes in page.tags if tag == "polyline"]
    assert len(polylines) == 5, "the return, in evaluations, Elo, the loss, what was replaced"


def test_films_are_linked_from_where_the_page_lies(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("my run", SUMMARIES)
    for step in (100, 200):
        add_film(run, step)
    report_module.write_report(read_run(run), tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["results/my%20run/film-100.gif", "results/my%20run/film-200.gif"]


def test_the_page_needs_nothing_beside_it(make_run: MakeRun) -> None:
    run = make_run("mine", SUMMARIES)
    add_film(run, 100)
    text = report(read_run(run), NOON)
    page = Page(text)
    assert list(page.addresses()) == ["data:image/gif;base64,", "film-100.gif"], (
        "a link to what lies beside it"
    )
    assert [attributes["href"] for tag, attributes in page.tags if tag == "a"] == ["film-100.gif"]
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text


def test_names_from_outside_are_no_markup(make_run: MakeRun) -> None:
    row = {"behavior": EVIL, "step": 5, "wall_s": 1.0, f"{EVIL}/{EVIL}": 1.0, "member_returns": {EVIL: 2.0}}
    surrogate = {"behavior": "\ud800\x00", "step": 5, "wall_s": 1.0, "mean_return": 1.0}
    run = make_run("mine", SUMMARIES, behavior=EVIL, settings={"trainer_type": EVIL}, rows=[row, surrogate])
    finish(run, 200, behavior=EVIL)
    page = page_of(run)
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.texts.count(EVIL) == 3, "behavior, trainer type and command"
    assert f"{EVIL}/{EVIL}" in page.texts, "a metric"
    report_module.write_report(read_run(run), run / "page.html")
    assert EVIL not in (run / "page.html").read_text(encoding="utf-8")


def test_runs_stand_as_their_folders_tell(make_run: MakeRun) -> None:
    def ending(run: Path) -> Ending:
        return run_status(read_run(run)).ending

    assert ending(make_run("new")) is Ending.NOTHING
    killed = make_run("killed", SUMMARIES)
    assert ending(killed) is Ending.BROKEN_OFF
    lock = FileLock(killed / ".lock")
    assert ending(killed) is Ending.RUNNING
    lock.release()
    stopped = make_run("stopped", SUMMARIES, settings={"max_steps": 500})
    finish(stopped, 200)
    assert ending(stopped) is Ending.STOPPED
    finished = make_run("finished", SUMMARIES, settings={"max_steps": 200})
    finish(finished, 200)
    assert ending(finished) is Ending.FINISHED
    acting_on = make_run("acting-on", [*SUMMARIES, (300, 3.0, 2.0)], settings={"max_steps": 200})
    finish(acting_on, 200)
    assert ending(acting_on) is Ending.FINISHED, "it acted on while another behavior learned"
    resumed = make_run("resumed", [*SUMMARIES, (300, 3.0, 2.0)], settings={"max_steps": 400})
    finish(resumed, 200)
    assert ending(resumed) is Ending.BROKEN_OFF, "its last save is of an earlier end"
    theirs = RunRecord(killed, ML_AGENTS, None, read_run(killed).curves)
    assert run_status(theirs).ending is Ending.UNKNOWN


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"Ball": {"checkpoints": 3}}', '{"total": "long", "metadata": []}']
)
def test_files_that_make_no_sense_are_passed_over(make_run: MakeRun, text: str) -> None:
    run = make_run("mine", SUMMARIES)
    (run / "run_logs").mkdir()
    for name in ("training_status.json", "timers.json"):
        (run / "run_logs" / name).write_text(text, encoding="utf-8")
    (run / "evaluations.jsonl").write_text(
        '{"behavior": "Ball", "step": [], "mean_return": "x"}\n', encoding="utf-8"
    )
    (run / "film-7.gif").write_bytes(b"<script>")
    assert "mine" in page_of(run).texts
