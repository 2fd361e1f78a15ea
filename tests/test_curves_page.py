"""The page on curves has every tag that the code writes and every key of metrics.jsonl, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trainer_service.running.metrics import EpisodeStats, Series, Summary, json_key
from trainer_service.running.metrics.jsonl import to_json
from trainer_service.running.metrics.summary import EPISODE_TAGS, MEMBER_REWARD, is_reserved

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "reading-the-curves.md").read_text(encoding="utf-8")
TAG = r"(?:Losses|Policy|Environment|Evaluation|Self-play|Consensus|Replay|Saving|Distributed)/[^`|]+"
ROW = re.compile(rf"^\| `(?P<tag>{TAG})` \| (?:`(?P<key>[^`]+)`|–) \|", re.MULTILINE)
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(?:NAME|N)(?![A-Za-z])")
RENAMED = {
    "Losses/Critic * Loss", "Policy/Entropy Coeff *",
    "Policy/Signal * *", "Policy/Signal * Value", "Policy/Signal * Reward", "Policy/* *", "Distributed/*",
}  # fmt: skip
"""SAC's own names for parts of its report, which it renames before it is written, and tags that end with a variable."""

COMPOSED = {"Policy/* Value"}
"""Tags of SAC whose last word is a variable."""


def patterns_in(tree: ast.Module) -> Iterator[str]:
    """Tags in the strings of a module; a star stands for a part that is filled in."""
    parts_of_strings = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in parts_of_strings
        ):
            yield node.value.replace("{}", "*")
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "add_statistic":
            yield f"Distributed/{ast.literal_eval(node.args[1])}"


def written_tags() -> set[str]:
    found = set()
    for path in (REPOSITORY / "trainer_service").rglob("*.py"):
        for text in patterns_in(ast.parse(path.read_text(encoding="utf-8"))):
            if re.fullmatch(TAG, text) and "\n" not in text:
                found.add(f"{text}*" if text.endswith("/") else text)
    return found - RENAMED | COMPOSED


def tags_on_page() -> dict[str, str | None]:
    """The keys of metrics.jsonl on the page by tag."""
    return {PLACEHOLDER.sub("*", row["tag"]): row["key"] for row in ROW.finditer(PAGE)}


def test_the_page_has_every_tag_that_the_code_writes_and_no_other() -> None:
    written, listed = written_tags(), set(tags_on_page())
    assert {"Policy/KL Divergence", "Policy/* Value Estimate", "Losses/Agent * Value Loss"} <= written
    # A tag of one signal is a case of the tags of all: 'Policy/Extrinsic Reward' of 'Policy/* Reward'.
    general = [re.compile(re.escape(tag).replace(r"\*", "[A-Z][a-z]+")) for tag in listed if "*" in tag]
    missing = {tag for tag in written - listed if not any(each.fullmatch(tag) for each in general)}
    assert not missing
    assert not listed - written


def test_no_simulator_has_a_tag_of_the_page() -> None:
    assert not [tag for tag in tags_on_page() if not is_reserved(tag.replace("*", "x"))]


def test_keys_are_those_of_the_file() -> None:
    for tag, key in tags_on_page().items():
        if tag in EPISODE_TAGS or tag.startswith((MEMBER_REWARD, "Evaluation/")):
            continue  # keys of their own, or another file
        assert key is not None
        assert PLACEHOLDER.sub("*", key) == json_key(tag), tag


def test_the_page_has_every_key_of_a_line() -> None:
    one = np.ones(1)
    series = {f"{MEMBER_REWARD}Leader": Series.of(1.0)}
    line = to_json(
        Summary(
            behavior="Ball", step=1, env_steps=1, wall_s=1.0, steps_per_s=1.0, replaced_values=1,
            stats=EpisodeStats(one, one, one), series=series,
        )
    )  # fmt: skip
    keys = {key for key in line if not key.endswith("_hist")} | {"lesson"}
    assert {"member_returns", "replaced_values", "mean_return"} <= keys
    assert not {key for key in keys if f"| `{key}` |" not in PAGE}
