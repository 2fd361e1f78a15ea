"""The console of a run: log lines in ML-Agents' form, and on a terminal a live table below them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO, TypeAlias

from trainer_service._version import __version__
from trainer_service.running.metrics import Summary, format_return, short_number
from trainer_service.running.metrics.jsonl import finite_or_none
from trainer_service.running.metrics.log_records import JsonFormatter, record_of_end
from trainer_service.running.metrics.notebook import NotebookTable
from trainer_service.running.metrics.writers import SUMMARY_OF_RECORD
from trainer_service.running.runs.files import with_short_paths
from trainer_service.running.runs.status import COMPATIBLE_MLAGENTS_VERSION
from unity_bridge.unblocked_output import drain, open_standard_streams, unblocked
from unity_bridge.untrusted_text import harmless, printable

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from trainer_service.config.run_options import LogFormat

LOGGERS = ("trainer_service", "unity_bridge")
"""The roots of the loggers of our packages."""
Chart: TypeAlias = Callable[[Mapping[str, Sequence[tuple[int, float]]]], str]
"""Draws the mean returns of behaviors over their steps, as HTML."""

_REFRESH_INTERVAL_S = 0.5  # drawing takes about 2 ms: half a percent of the time
_WIDE_COLUMNS = 120
"""Width from which the table has all columns, and its numbers all digits."""

_logger = logging.getLogger(__name__)


class Console:
    """Shows a run for as long as its ``with`` block lasts.

    Everything that our packages log appears as a line. On a terminal a table with a row per behavior stays
    below the lines, in a notebook above them, drawn in the calling thread at most twice a second. A terminal that
    closes silences a run but does not end it.
    """

    def __init__(
        self,
        *,
        tty: bool | None = None,
        notebook: bool = False,
        chart: Chart | None = None,
        table: Callable[[], RenderableType] | None = None,
        debug: bool = False,
        log_format: LogFormat = "text",
        verbose: int | None = None,
        stream: TextIO | None = None,
    ) -> None:
        """Prepares, without output.

        Args:
            tty: whether to draw the table on a terminal; None asks the stream.
            notebook: whether to draw the table in a notebook.
            chart: draws the chart of mean returns below it; None for no chart.
            table: draws another table instead of the table of behaviors.
            debug: also show debug messages, and of each message when and where it was logged.
            log_format: ``json`` writes one JSON object a line, and draws no table.
            verbose: 0 shows nothing, 1 a line for each summary and warnings, 2 everything; None all but details, which
                JSON and ``debug`` show.
            stream: where to write; None is standard output, whose reader is never waited for: if it stops, lines are
                dropped, and counted.
        """
        self._is_json = log_format == "json"
        self._verbose = 2 if verbose is None else verbose
        self._has_details = verbose == 2 or debug or self._is_json
        self._tty = False if self._is_json or self._verbose < 2 else tty
        self._notebook = notebook and not self._is_json and self._verbose > 0
        self._chart = chart
        self._draw_table = table or self._table
        self._debug = debug
        self._stream = stream
        self._is_unblocked = False
        """Whether the stream is an unblocked stream of this package, to which writes never wait."""
        self._handler: logging.Handler | None = None
        self._previous_levels: dict[str, int] = {}
        self._terminal: RichConsole | None = None
        self._live: Live | NotebookTable | None = None
        self._rows: dict[str, _Row] = {}
        self._started_s = 0.0
        self._next_refresh_s = 0.0
        self._activity = ""
        self._details: Sequence[str] = ()

    def __enter__(self) -> Self:
        if self._stream is None:
            open_standard_streams()
            (self._stream,) = unblocked(sys.stdout)
            self._is_unblocked = self._stream is not sys.stdout
        stream = self._stream
        self._started_s = time.monotonic()
        if self._notebook:
            self._live = NotebookTable(self._table, self._curves)
            self._live.start()
        elif _is_terminal(stream) if self._tty is None else self._tty:
            self._start_table(stream)
        self._start_logging(stream)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None
        if self._is_json and isinstance(error, Exception) and self._handler is not None:
            self._handler.handle(record_of_end(error))
        for name, level in self._previous_levels.items():
            logger = logging.getLogger(name)
            logger.setLevel(level)
            if self._handler is not None:
                logger.removeHandler(self._handler)
        if self._is_unblocked and self._stream is not None:
            drain(self._stream)

    def banner(self, *, communicator_api: str, pytorch: str) -> None:
        """Says which versions are at work, in lines that begin as ML-Agents' do. They are details."""
        if not self._has_details:
            return
        compatible = f"{COMPATIBLE_MLAGENTS_VERSION} (compatible)"
        text = (
            " Version information:\n"
            f"  trainer-service: {__version__},\n"
            f"  ml-agents: {compatible},\n"
            f"  ml-agents-envs: {compatible},\n"
            f"  Communicator API: {communicator_api},\n"
            f"  PyTorch: {pytorch}"
        )
        if self._is_json:
            self.log(text.strip())
        else:
            self._print(text)

    def log(self, message: str, level: int = logging.INFO) -> None:
        """Logs one line."""
        _logger.log(level, "%s", message, stacklevel=2)

    def progress(self, behavior: str, step: int, max_steps: int, steps_per_s: float) -> None:
        """Shows how far a behavior is. Costs next to nothing, so it may be called at every tick."""
        if self._live is None:
            return
        row = self._rows.get(behavior)
        if row is None:
            row = self._rows[behavior] = _Row()
        row.step = step
        row.max_steps = max_steps
        row.steps_per_s = steps_per_s
        if time.monotonic() >= self._next_refresh_s:
            self._refresh()

    def forget(self, behavior: str) -> None:
        """Takes a behavior out of the table."""
        self._rows.pop(behavior, None)

    def activity(self, text: str, *, at_once: bool = False) -> None:
        """Shows the current activity of the run below the table. Costs almost nothing, unless drawn ``at_once``."""
        self._activity = text
        if self._live is not None and (at_once or time.monotonic() >= self._next_refresh_s):
            self._refresh()

    def details(self, lines: Sequence[str]) -> None:
        """Shows further lines below the table, until it is given others. Costs next to nothing."""
        self._details = lines

    @property
    def has_table(self) -> bool:
        """Whether a table is shown, and so the progress of behaviors."""
        return self._live is not None

    def summary(self, summary: Summary, max_steps: int) -> None:
        """Shows the statistics of a summary in the table; its line in the log is ``ConsoleWriter``'s work."""
        row = self._rows.setdefault(summary.behavior, _Row())
        row.summary = summary
        if self._chart is not None and (mean := finite_or_none(summary.stats.mean_return)) is not None:
            row.returns.append((summary.step, mean))
        self.progress(summary.behavior, summary.step, max_steps, summary.steps_per_s)

    def checkpoint(self, behavior: str, step: int) -> None:
        """Shows that a behavior was saved."""
        self._rows.setdefault(behavior, _Row()).checkpoint = step

    def _start_table(self, stream: TextIO) -> None:
        # Imported only here: a run without a terminal does without them.
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._terminal = RichConsole(file=stream, force_terminal=True)
        self._live = Live(console=self._terminal, auto_refresh=False, get_renderable=self._draw_table)
        self._live.start()

    def _start_logging(self, stream: TextIO) -> None:
        handler: logging.Handler = _LineHandler(stream)
        if self._terminal is not None:
            handler = _TableHandler(self._terminal)
        if not self._verbose:
            handler = logging.NullHandler()  # without any, logging itself would print warnings
        elif self._verbose == 1:
            handler.addFilter(_is_summary_or_warning)
        elif not self._has_details:
            handler.addFilter(lambda record: not getattr(record, "is_detail", False))
        if self._is_json:
            handler.setFormatter(JsonFormatter())
        elif self._debug:
            line_format = "%(asctime)s %(levelname)s [%(filename)s:%(lineno)d] %(message)s"
            handler.setFormatter(HarmlessFormatter(line_format, "%Y-%m-%d %H:%M:%S"))
        else:
            handler.setFormatter(HarmlessFormatter("[%(levelname)s] %(message)s"))
        self._handler = handler
        for name in LOGGERS:
            logger = logging.getLogger(name)
            self._previous_levels[name] = logger.level
            if self._debug or logger.level == logging.NOTSET:  # a level that the caller set stays
                logger.setLevel(logging.DEBUG if self._debug else logging.INFO)
            logger.addHandler(handler)

    def _print(self, text: str) -> None:
        if self._verbose < 2:
            return
        with contextlib.suppress(OSError):
            if self._terminal is not None:
                _print_above(self._terminal, text)
            else:
                print(text, file=self._stream, flush=True)

    def _refresh(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.refresh()
        self._next_refresh_s = time.monotonic() + _REFRESH_INTERVAL_S

    def _curves(self) -> str:
        """The chart of mean returns as HTML."""
        if self._chart is None:
            return ""
        return self._chart({behavior: row.returns for behavior, row in self._rows.items()})

    def _table(self) -> RenderableType:
        from rich.console import Group

        if not self._rows:
            return Group()
        elapsed_s = time.monotonic() - self._started_s
        below = [_lessons(self._rows.values()), *self._details, self._activity]
        wide = self._terminal is None or self._terminal.width >= _WIDE_COLUMNS
        return _draw(self._rows, elapsed_s, below, wide=wide)


@dataclass(slots=True)
class _Row:
    """One row of the table: a behavior."""

    step: int = 0
    max_steps: int = 0
    steps_per_s: float = 0.0
    summary: Summary | None = None
    checkpoint: int | None = None
    returns: list[tuple[int, float]] = field(default_factory=list)
    """Steps and mean returns of the summaries so far, where there is a chart of them."""


def _draw(rows: Mapping[str, _Row], elapsed_s: float, below: Iterable[str], *, wide: bool) -> Table:
    """Returns the table with the non-empty lines below it.

    ``wide`` adds columns that a narrow terminal lacks, and writes numbers out. Where room is short, names are cut.
    """
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Behavior")  # rich cuts columns that may wrap before all others; its cells do not
    table.add_column("")
    for header in ("Step", "Reward", *(["Length"] if wide else []), "Steps/s", "Elapsed"):
        table.add_column(header, justify="right", no_wrap=True)
    if wide:
        table.add_column("Saved at", justify="right", no_wrap=True)
    for behavior, row in rows.items():
        table.add_row(
            _name(behavior),
            ProgressBar(total=max(row.max_steps, 1), completed=row.step, width=16 if wide else 6),
            f"{row.step:,} / {row.max_steps:,}"
            if wide
            else f"{short_number(row.step, 3)} / {short_number(row.max_steps, 3)}",
            _reward(row.summary, wide=wide),
            *([_length(row.summary)] if wide else []),
            f"{row.steps_per_s:,.0f}",
            _clock(elapsed_s),
            *(["–" if row.checkpoint is None else f"{row.checkpoint:,}"] if wide else []),
        )
        for member, mean in row.summary.member_returns.items() if row.summary else ():
            table.add_row(
                _name(f"  {member}"), "", "", format_return(mean) if wide else short_number(mean, 3)
            )
    if lines := list(filter(None, below)):
        table.caption, table.caption_justify = Text(printable("\n".join(lines))), "left"
    return table


def _is_summary_or_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or hasattr(record, SUMMARY_OF_RECORD)


def _lessons(rows: Iterable[_Row]) -> str:
    """Names the lesson of each curriculum at the newest summary; parameters that never change are left out."""
    newest = max((row.summary for row in rows if row.summary), key=lambda each: each.wall_s, default=None)
    lessons = {} if newest is None else newest.lessons
    changing = [f"{name} {lesson.name}" for name, lesson in lessons.items() if lesson.name != name]
    return f"Lessons: {', '.join(changing)}" if changing else ""


def _name(text: str) -> Text:
    """A name in one line, cut where room is short; as it is: brackets in it are no markup."""
    from rich.text import Text

    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _reward(summary: Summary | None, *, wide: bool) -> str:
    if summary is None or summary.stats.mean_return is None:
        return "–"
    mean, deviation = summary.stats.mean_return, summary.stats.std_return or 0.0
    group = summary.stats.mean_group_return
    if wide:
        text = f"{format_return(mean, deviation)} ± {format_return(deviation, mean)}"
        return text if group is None else f"{text} (group {format_return(group)})"
    text = f"{short_number(mean, 3)} ± {short_number(deviation, 3)}"
    return text if group is None else f"{text} (group {short_number(group, 3)})"


def _length(summary: Summary | None) -> str:
    length = None if summary is None else summary.stats.mean_length
    return "–" if length is None else f"{length:.1f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _is_terminal(stream: TextIO) -> bool:
    # A dumb terminal cannot move its cursor back up to draw the table again.
    return stream.isatty() and os.environ.get("TERM", "").lower() not in {"dumb", "unknown"}


def _print_above(terminal: RichConsole, text: str) -> None:
    # As it is: names may look like markup, and numbers in colours would be noise.
    terminal.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)


class HarmlessFormatter(logging.Formatter):
    """A formatter of lines for people: without control characters, which simulators may have sent, and not too long."""

    def format(self, record: logging.LogRecord) -> str:
        return with_short_paths(harmless(super().format(record)))


class _LineHandler(logging.StreamHandler[TextIO]):
    """A handler that writes lines, and is silent once the stream is closed."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _TableHandler(logging.Handler):
    """A handler that prints lines above the table."""

    def __init__(self, terminal: RichConsole) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _print_above(self._terminal, self.format(record))
        except OSError:
            pass  # the terminal is gone, the run continues
        except Exception:
            self.handleError(record)
