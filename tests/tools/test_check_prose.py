"""The report on headings, sentences and docstrings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_prose
from tools.check_prose import (
    FIRST_LINE,
    HEADING,
    PRONOUN,
    SENTENCE,
    WORD,
    counts,
    findings_in_module,
    findings_in_page,
)

PAGE = Path("page.md")
MODULE = Path("module.py")
LONG = "word " * 31
FITS = "word " * 29


def kinds_in_page(text: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.kind) for finding in findings_in_page(PAGE, text)]


def test_headings_that_begin_with_a_question_word_are_listed() -> None:
    assert kinds_in_page("# Groups\n\n## How a team is told\n\n### Whole groups\n") == [(3, HEADING)]


def test_sentences_above_thirty_words_are_listed_by_the_line_of_their_block() -> None:
    assert kinds_in_page(f"{FITS}end. {FITS}end.\n\n- short\n- {LONG}\n  more.\n") == [(4, SENTENCE)]


def test_a_cell_of_a_table_is_a_text_of_its_own() -> None:
    assert kinds_in_page(f"| {FITS} | {FITS} |\n| {LONG} | short |\n") == [(2, SENTENCE)]


def test_code_is_not_prose() -> None:
    fenced = f"```text\n# What is this\n{LONG}\n```\n"
    assert kinds_in_page(f"{fenced}\n    {LONG}\n\nA `{LONG}` span and a [link](of/{LONG.strip()}).\n") == []


def test_docstrings_of_functions_classes_and_attributes_are_listed() -> None:
    source = f'"""What it is."""\nclass Speed:\n    """The speed."""\n    limit = 1\n    """{LONG}"""\n'
    found = sorted((finding.line, finding.kind) for finding in findings_in_module(MODULE, source))
    assert found == [(1, FIRST_LINE), (5, SENTENCE)]


def test_a_drawing_in_a_docstring_is_not_prose() -> None:
    drawing = f'"""The parts.\n\n        {LONG}\n        {LONG}\n    """'
    assert list(findings_in_module(MODULE, f"class Parts:\n    {drawing}\n")) == []


def test_equations_of_a_docstring_are_not_prose() -> None:
    source = f'def f():\n    """The loss.\n\n        {LONG}\n\n    Args:\n        rate: {LONG}\n    """\n'
    assert [finding.kind for finding in findings_in_module(MODULE, source)] == [SENTENCE]


@pytest.mark.parametrize(
    "sentence",
    [
        "Install it with what this page uses.",
        "It counts those that never ended.",
        "Whoever has it may send data.",
    ],
)
def test_a_pronoun_in_the_place_of_a_noun_is_listed(sentence: str) -> None:
    assert kinds_in_page(f"{sentence}\n") == [(1, PRONOUN)]


def test_a_question_that_is_an_object_is_no_pronoun_for_a_noun() -> None:
    assert (
        kinds_in_page("This page explains messages, and what to do about them. Advice on what to do.\n") == []
    )


def test_one_line_counts_every_kind() -> None:
    found = [*findings_in_page(PAGE, f"# What\n\n{LONG}\n"), *findings_in_module(MODULE, '"""Who acts."""')]
    assert [word for word in counts(found).split() if word.isdigit()] == [
        *("1", "1", "0", "30", "0", "0", "1", "0", "0"),
    ]


@pytest.mark.parametrize(
    "source", ['"""The run goes on."""', 'raise ValueError("nobody attached")', 'say(f"{n} anew")']
)
def test_words_to_avoid_are_listed_in_docstrings_and_messages(source: str) -> None:
    assert [finding.kind for finding in findings_in_module(MODULE, source)] == [WORD]


def test_the_report_never_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_prose.main(["--counts"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
