from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_service.config.reading.document import read_document
from trainer_service.errors import ConfigError


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "run.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    return str(caught.value).replace(str(path), "run.yaml")


def test_every_key_and_list_entry_knows_its_line(tmp_path: Path) -> None:
    document = read_document(write(tmp_path, "a:\n  b: 1\n  c:\n  - 2\n  - d: 3\n"))
    assert document.values == {"a": {"b": 1, "c": [2, {"d": 3}]}}
    assert document.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }


def test_anchors_aliases_and_merge_keys_follow_yaml(tmp_path: Path) -> None:
    text = "x: &x {a: 1, b: 1}\ny: &y {<<: *x, b: 2}\nz: {c: 3, <<: [*y, *x]}\nw: *x\n"
    assert read_document(write(tmp_path, text)).values == {
        "x": {"a": 1, "b": 1},
        "y": {"a": 1, "b": 2},
        "z": {"a": 1, "b": 2, "c": 3},
        "w": {"a": 1, "b": 1},
    }


def test_a_duplicate_key_is_reported_with_both_lines(tmp_path: Path) -> None:
    document = read_document(write(tmp_path, "a:\n  b: 1\n  c: 2\n  b: 3\n"))
    (problem,) = document.problems
    assert document.at(problem).endswith("run.yaml:4: a.b: duplicate key, already given on line 2")


def test_a_key_that_is_not_a_text_is_reported(tmp_path: Path) -> None:
    document = read_document(write(tmp_path, "a:\n  yes: 1\n  2: 1\n  [3]: 1\n"))
    assert [document.at(problem).split("run.yaml:")[1] for problem in document.problems] == [
        "2: a: a key must be a text, got true; put it in quotes",
        "3: a: a key must be a text, got 2; put it in quotes",
        "4: a: a key must be a text, got a list; put it in quotes",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.yaml: the file is empty; expected a mapping with 'behaviors'"),
        ("# only a comment\n", "run.yaml: the file is empty; expected a mapping with 'behaviors'"),
        ("- a\n", "run.yaml: expected a mapping with 'behaviors', got a list"),
        ("just text", "run.yaml: expected a mapping with 'behaviors', got 'just text'"),
        ("a: 1\nb: [2\n", "run.yaml:3: not valid YAML: "),
        ("a: 1\n\tb: 2\n", "run.yaml:2: not valid YAML: "),
        ("a: 1\n---\nb: 2\n", "run.yaml:2: not valid YAML: "),
        ("a: 1\nb: \x07\n", "run.yaml:2: not valid YAML: special characters are not allowed"),
        ("a: 1\nb: *nowhere\n", "run.yaml:2: not valid YAML: found undefined alias 'nowhere'"),
        (
            "a: !!python/object:os.system {}\n",
            "run.yaml:1: not valid YAML: could not determine a constructor",
        ),
        ("a: 1\nb: 2001-99-99\n", "run.yaml:2: '2001-99-99' is not of type timestamp"),
        ("a: !!int ''\n", "run.yaml:1: '' is not of type int"),
        ("a: !!bool maybe\n", "run.yaml:1: 'maybe' is not of type bool"),
        ("a: !!timestamp soon\n", "run.yaml:1: 'soon' is not of type timestamp"),
        ("a: {<<: 5}\n", "run.yaml:1: '<<' expected a mapping to merge"),
        (b"a: 1\nb: \xff\n", "run.yaml:2: not UTF-8 (byte 0xff); save the file as UTF-8"),
        ("a: 1" + ":1" * 5000, "run.yaml:1: '1:1:1:1"),
        ("a: 0x" + "f" * 5000, "run.yaml:1: '0xfff"),
        ("a: -" + "9" * 5000, "run.yaml:1: '-999"),
        ("a: !!set {b, c}\n", "run.yaml:1: a list is not of type set"),
        ("a: !!pairs [b: 1]\n", "run.yaml:1: a list is not of type pairs"),
        ("a: " + "x" * 2**18, "run.yaml: expected a configuration of at most 262144 bytes, got more"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refusal(write(tmp_path, text)).startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 12)),
        "a0: &a0 {k: 1}\n"
        + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 8)}]}}\n" for i in range(1, 12)),
        "a: &a [*a]\n",
        "a: &a {<<: *a}\n",
    ],
    ids=["billion laughs", "billion merges", "alias inside itself", "merge of itself"],
)
def test_aliases_cannot_multiply_without_bound(tmp_path: Path, text: str) -> None:
    assert "do aliases (*name) multiply, or contain themselves?" in refusal(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: " + "[" * 5000, 1),
        ("a: " + "{" * 5000, 1),
        ("a: " + "{a: " * 5000, 1),
        ("- " * 5000, 1),
        ("".join(" " * depth + "a:\n" for depth in range(300)), 51),
        ("a: [" + "1," * 100_000 + "1]", 1),
        ("a:\n" + "- 1\n" * 60_000, 9_999),
        ("a: 1\n" * 40_000, 5_000),
    ],
    ids=["brackets", "braces", "mappings", "dashes", "indented", "flow list", "list", "one key"],
)
def test_long_or_deep_documents_are_refused_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    composed = 0
    compose = yaml.SafeLoader.compose_node

    def count(*arguments: Any) -> Any:
        nonlocal composed
        composed += 1
        return compose(*arguments)

    monkeypatch.setattr(yaml.SafeLoader, "compose_node", count)
    message = f"run.yaml:{line}: more than 10000 values or 50 levels"
    assert refusal(write(tmp_path, text)).startswith(message)
    assert composed <= 10_000


def test_a_missing_file_is_named_with_its_absolute_path(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.yaml"
    with pytest.raises(ConfigError, match="configuration file not found") as caught:
        read_document(path)
    assert str(path.absolute()) in str(caught.value)


@pytest.mark.parametrize(
    ("sought", "meant"), [("walkr.yaml", "walker.yaml"), ("walker", "walker.yaml"), ("x.yaml", "")]
)
def test_a_missing_file_names_the_nearest_one_beside_it(tmp_path: Path, sought: str, meant: str) -> None:
    (tmp_path / "walker.yaml").touch()
    hint = f"; did you mean {tmp_path / meant}?)" if meant else f"{sought})"
    with pytest.raises(ConfigError) as caught:
        read_document(tmp_path / sought)
    assert str(caught.value).endswith(hint)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    document = read_document(write(tmp_path, b"\xef\xbb\xbfa: 1\r\nb: 2\r\n"))
    assert document.values == {"a": 1, "b": 2}
    assert document.lines[("b",)] == 2
