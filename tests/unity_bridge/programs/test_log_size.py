"""Logs of programs that print without end."""

from __future__ import annotations

import os
from pathlib import Path

from unity_bridge.programs.log_size import cut_middle

SIZES = {"most_bytes": 100_000, "head": 1000, "tail": 2000}


def test_of_a_long_log_the_beginning_and_the_end_stay(tmp_path: Path) -> None:
    log = tmp_path / "Player-0.log"
    text = "".join(f"line {number}\n" for number in range(20_000)).encode()
    with log.open("ab") as program:
        program.write(text)
        program.flush()
        assert cut_middle(log, **SIZES)
        program.write(b"goes on\n")
    left = log.read_bytes()
    assert left.startswith(text[:1000] + b"\n[... cut here: this log may take 100000 bytes ...]\n")
    assert left.endswith(text[-2000:] + b"goes on\n")
    assert len(left) < 4000
    assert not cut_middle(log, **SIZES)


def test_a_program_that_does_not_append_takes_no_more_disk(tmp_path: Path) -> None:
    log = tmp_path / "Player-0.log"
    with log.open("wb", buffering=0) as program:
        for _ in range(3):
            program.write(b"x" * 200_000)
            cut_middle(log, **SIZES)
    if os.name == "posix":
        assert log.stat().st_blocks * 512 < 100_000


def test_a_short_log_and_one_that_is_gone_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "Player-0.log"
    assert not cut_middle(log, **SIZES)
    log.write_bytes(b"x" * 50_000)
    assert not cut_middle(log, **SIZES)
    assert log.stat().st_size == 50_000
