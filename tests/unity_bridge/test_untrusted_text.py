from __future__ import annotations

from unity_bridge.untrusted_text import LONGEST_LINE, LONGEST_QUOTED, harmless, quoted, version_text


def test_what_is_quoted_stays_on_its_line() -> None:
    assert quoted("\x1b[31mPWN\n[INFO] forged") == "'\\x1b[31mPWN\\n[INFO] forged'"


def test_what_is_quoted_is_cut() -> None:
    assert quoted("x" * 5_000_000) == f"'{'x' * LONGEST_QUOTED}'… (5000000 characters)"


def test_what_is_printed_moves_no_cursor_and_forges_no_line() -> None:
    said = harmless("[WARNING] \x1b[31mPWN\r\x9b2J\u202egnp.exe\n[INFO] forged\n\tindented")
    assert said == "[WARNING] \\x1b[31mPWN\\x0d\\x9b2J\\u202egnp.exe\n  [INFO] forged\n\tindented"


def test_very_long_lines_are_cut() -> None:
    said = harmless("x" * 3_000_000 + "\nand the rest")
    assert said == "x" * LONGEST_LINE + "…\nand the rest"


def test_a_version_is_a_version_or_quoted() -> None:
    assert version_text("2.3.0-exp.3") == "2.3.0-exp.3"
    assert version_text("2.0\x1b[2J") == "'2.0\\x1b[2J'"
    assert version_text("9" * 41) == f"'{'9' * 41}'"
