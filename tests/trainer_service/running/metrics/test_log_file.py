"""The trainer's log file in the folder of a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_service.running.metrics import log_file as log_file_module
from trainer_service.running.metrics.log_file import log_file
from trainer_service.running.runs.layout import OLDER_LOGS

LOGGER = logging.getLogger("unity_bridge.server.bridge")


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Levels as a console sets them."""
    loggers = [logging.getLogger(name) for name in ("trainer_service", "unity_bridge")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run_logs" / "trainer.log"


def test_lines_have_time_and_level(path: Path) -> None:
    with log_file(path, append=False):
        LOGGER.info("simulator %d came", 3)
    first, second = path.read_text().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO trainer-service .*, process \d+ .*", first
    )
    assert second.endswith(" INFO simulator 3 came")


def test_secrets_are_for_the_console_alone(path: Path) -> None:
    with log_file(path, append=False):
        LOGGER.info("join: a secret", extra={"is_secret": True})
        LOGGER.info("no secret")
    assert "no secret" in path.read_text()
    assert "join: " not in path.read_text()


@pytest.mark.parametrize("append", [False, True])
def test_only_a_resumed_run_keeps_earlier_lines(path: Path, append: bool) -> None:
    with log_file(path, append=False):
        LOGGER.info("earlier")
    with log_file(path, append=append):
        LOGGER.info("later")
    text = path.read_text()
    assert "later" in text
    assert ("earlier" in text) is append


def test_a_long_log_is_cut_into_a_few_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file_module, "LARGEST_LOG", 500)
    with log_file(path, append=False):
        for number in range(100):
            LOGGER.info("line %d", number)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == [path.name, *(f"{path.name}.{n + 1}" for n in range(OLDER_LOGS))]
    assert all(file.stat().st_size <= 500 for file in files)
    assert path.read_text().endswith("line 99\n")


def test_an_unexpected_error_leaves_its_traceback(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), log_file(path, append=False):
        raise ZeroDivisionError("unexpected")
    assert "test_log_file.py" in path.read_text()
    assert path.read_text().endswith("ZeroDivisionError: unexpected\n")
