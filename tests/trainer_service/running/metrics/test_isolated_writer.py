import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_service.running.metrics import Summary, SummaryWriter
from trainer_service.running.metrics.isolated_writer import IsolatedWriter


def summary(step: int) -> Summary:
    return Summary(behavior="Ball", step=step, wall_s=1.0, steps_per_s=1.0)


class Recording(SummaryWriter):
    """Keeps what it is called with; raises or waits at a step."""

    def __init__(self, raises_at: int | None = None, waits_at: int | None = None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.released = threading.Event()
        self.waiting = threading.Event()
        self._raises_at = raises_at
        self._waits_at = waits_at

    def open(self) -> None:
        self.calls.append(("open", threading.current_thread() is threading.main_thread()))

    def write(self, summary: Summary) -> None:
        if summary.step == self._raises_at:
            raise RuntimeError("no\nnetwork")
        if summary.step == self._waits_at:
            self.waiting.set()
            assert self.released.wait(60)
        self.calls.append(("write", summary.step))

    def write_settings(self, behavior: str, text: str) -> None:
        self.calls.append(("settings", behavior, text))

    def write_evaluation(self, summary: Summary) -> None:
        self.calls.append(("evaluation", summary.step))

    def write_film(self, behavior: str, step: int, film: Path) -> None:
        self.calls.append(("film", behavior, step, film))

    def truncate_after(self, behavior: str, step: int) -> None:
        self.calls.append(("truncate", behavior, step))

    def close(self, end: str = "finished") -> None:
        self.calls.append(("close", end))


@pytest.fixture
def slow() -> Iterator[Recording]:
    """Waits at step 1 until the test is over."""
    writer = Recording(waits_at=1)
    yield writer
    writer.released.set()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_everything_is_handed_on_in_order_by_another_thread(tmp_path: Path) -> None:
    inner = Recording()
    writer = IsolatedWriter("Tracker 'x'", inner)
    writer.open()
    writer.write_settings("Ball", "a: 1")
    writer.truncate_after("Ball", 5)
    writer.write(summary(10))
    writer.write_evaluation(summary(11))
    writer.write_film("Ball", 11, tmp_path / "film-11.gif")
    writer.close("interrupted")
    writer.join()
    assert inner.calls == [
        ("open", False),
        ("settings", "Ball", "a: 1"),
        ("truncate", "Ball", 5),
        ("write", 10),
        ("evaluation", 11),
        ("film", "Ball", 11, tmp_path / "film-11.gif"),
        ("close", "interrupted"),
    ]


def test_a_writer_that_raises_is_left_out_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    inner = Recording(raises_at=2)
    writer = IsolatedWriter("Tracker 'x'", inner)
    writer.open()
    for step in (1, 2, 3):
        writer.write(summary(step))
    writer.close()
    writer.join()
    assert inner.calls == [("open", False), ("write", 1)]
    assert warnings(caplog) == [
        "Tracker 'x' is left out from here on: RuntimeError: no network. The run continues without it."
    ]


def test_a_writer_that_hangs_is_left_out_and_never_waited_for(
    slow: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    writer = IsolatedWriter("Tracker 'x'", slow, patience_s=0.0)
    writer.open()
    writer.write(summary(1))
    assert slow.waiting.wait(60)
    writer.write(summary(2))
    writer.write(summary(3))
    writer.close()
    writer.join()
    (warning,) = warnings(caplog)
    assert warning.startswith("Tracker 'x' is left out from here on: it has not answered for 0 s.")
    assert slow.calls == [("open", False)]
