"""Lists hard sentences of pages, docstrings and the comments of configurations: a report, not a test.

    python tools/check_prose.py            # a line for each finding, then the counts
    python tools/check_prose.py --counts   # the counts only

Five findings: a heading that begins with a question word instead of a noun, a sentence of more than 30 words, a pronoun
in the place of a noun ("with what this page uses", "those that never reached it", "whoever has it"), a docstring whose
first line begins with a relative clause, and words that technical English does without ("goes on", "anew", "nobody"),
in messages too.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
WITH_PAGES = ("docs", "benchmarks", "examples")
WITH_YAML = ("configs", "benchmarks", "examples")
WITH_MODULES = ("trainer_service", "unity_bridge", "benchmarks", "examples", "tools")
MOST_WORDS = 30
HEADING, SENTENCE, PRONOUN, FIRST_LINE, WORD = ("heading", "long sentence", "pronoun", "docstring", "word")

_QUESTION_HEADING = re.compile(r"#+ (?:What|Who|How|Where)\b")
_RELATIVE_START = re.compile(r"(?:What|Who|That)\b")
_PRONOUN = re.compile(
    r"\b(?:of|by|for|from|with|in|on|at|than|beside) (?:what|who|whom)\b(?! to\b)"
    r"|\b(?:those|others) (?:who|that|which|have)\b|\bwhoever\b|\bwhatever (?:is|comes|may|can)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\b(?:go(?:es|ing)? on|went on|anew|nobody|somebody|of no use)\b", re.IGNORECASE)
_NEW_BLOCK = re.compile(r"#|\s*(?:[-*]|\d+\.) |\s*\|")
_CODE = re.compile(r"``.+?``|`[^`]+`")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])[*)\"]*\s+")


class Finding(NamedTuple):
    path: Path
    line: int
    kind: str
    text: str


def findings_in_page(path: Path, text: str) -> Iterator[Finding]:
    """Yields the headings and the sentences of a Markdown page that should be rewritten."""
    for line, block in _blocks(text):
        if _QUESTION_HEADING.match(block):
            yield Finding(path, line, HEADING, block.lstrip("# "))
        for cell in block.split("|") if block.startswith("|") else [block]:
            yield from _in_sentences(path, line, cell)


def findings_in_module(path: Path, source: str) -> Iterator[Finding]:
    """Yields the docstrings, those of attributes included, and the messages of a module that should be rewritten."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        is_message = (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        )
        if is_message and _WORD.search(node.value):
            yield Finding(path, node.lineno, WORD, node.value)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                first = text.partition("\n")[0]
                if _RELATIVE_START.match(first):
                    yield Finding(path, node.lineno, FIRST_LINE, first)
                margin = " " * node.col_offset  # a paragraph indented beyond it is a drawing
                for _, block in _blocks("\n".join(line.removeprefix(margin) for line in text.splitlines())):
                    yield from _in_sentences(path, node.lineno, block)


def findings_in_configuration(path: Path, text: str) -> Iterator[Finding]:
    """Yields the comments of a YAML file that should be rewritten: those of whole lines by paragraphs."""
    lines = text.splitlines()
    # Indented lines are commands.
    whole = (line[2:] if line.startswith("# ") and line[2:3] != " " else "" for line in lines)
    yield from findings_in_page(path, "\n".join(whole))
    for number, line in enumerate(lines, 1):
        setting, _, comment = line.partition(" # ")
        if setting and not line.startswith("#"):
            yield from _in_sentences(path, number, comment)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yields paragraphs, list items, rows of tables and headings with their lines, without code."""
    block: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith(("```", "$$"))
        fenced ^= fence
        skipped = fence or fenced or not line.strip() or (not block and line.startswith("    "))
        if block and (skipped or _NEW_BLOCK.match(line) or block[0].startswith("#")):
            yield start, " ".join(block)
            block = []
        if not skipped:
            start = start if block else number
            block.append(line.strip())


def _in_sentences(path: Path, line: int, text: str) -> Iterator[Finding]:
    """Yields long sentences and pronouns in the place of nouns. A span of code is one word, a colon ends a sentence."""
    bare = _LINK_TARGET.sub("", _CODE.sub("code", text))
    for sentence in _SENTENCE_END.split(bare):
        if len(sentence.split()) > MOST_WORDS:
            yield Finding(path, line, SENTENCE, sentence)
        if _PRONOUN.search(sentence):
            yield Finding(path, line, PRONOUN, sentence)
        if _WORD.search(sentence):
            yield Finding(path, line, WORD, sentence)


def all_findings(checkout: Path) -> Iterator[Finding]:
    """Yields the findings of all pages, configurations and modules, the generated wire code left out."""
    pages = [
        *checkout.glob("*.md"),
        *(page for name in WITH_PAGES for page in (checkout / name).rglob("*.md")),
    ]
    for page in sorted(pages):
        yield from findings_in_page(page.relative_to(checkout), page.read_text(encoding="utf-8"))
    for config in sorted(path for name in WITH_YAML for path in (checkout / name).rglob("*.yaml")):
        yield from findings_in_configuration(config.relative_to(checkout), config.read_text(encoding="utf-8"))
    for module in sorted(path for name in WITH_MODULES for path in (checkout / name).rglob("*.py")):
        if "wire" not in module.parts and module != Path(__file__).resolve():  # this one quotes the words
            yield from findings_in_module(module.relative_to(checkout), module.read_text(encoding="utf-8"))


def counts(findings: Sequence[Finding]) -> str:
    """Returns one line with the number of findings of each kind."""
    found = Counter((each.kind, ".py" if each.path.suffix == ".py" else ".md") for each in findings)
    return (
        f"prose: {found[HEADING, '.md']} headings begin with a question word, "
        f"{found[SENTENCE, '.md']} sentences on pages and {found[SENTENCE, '.py']} in docstrings have more than "
        f"{MOST_WORDS} words, {found[PRONOUN, '.md']} on pages and {found[PRONOUN, '.py']} in docstrings have a "
        f"pronoun in the place of a noun, {found[FIRST_LINE, '.py']} docstrings begin with a relative clause, "
        f"{found[WORD, '.md']} sentences on pages and {found[WORD, '.py']} in the code have words to avoid"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report. Returns 0 whatever was found."""
    parser = argparse.ArgumentParser(description="Headings, sentences and docstrings that are hard to read.")
    parser.add_argument("--counts", action="store_true", help="print the counts only")
    arguments = parser.parse_args(argv)
    findings = list(all_findings(CHECKOUT))
    for finding in () if arguments.counts else findings:
        print(f"{finding.path.as_posix()}:{finding.line}: {finding.kind}: {finding.text}")
    print(counts(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
