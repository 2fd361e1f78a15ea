"""The table of mutations fits the code, and a mutation is judged by the tests that it fails."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from loaded_files import module_of

REPOSITORY = Path(__file__).parents[2]


TOOL = module_of(REPOSITORY / "tools" / "mutations.py")
RULE = ("double", "pkg/maths.py", "return 2 * x", "return 3 * x", "it doubles")


def test_every_mutation_changes_code_that_is_there() -> None:
    for mutation in TOOL.read_table():
        text = (REPOSITORY / mutation.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutation.apply(text))) != ast.dump(ast.parse(text)), mutation.name
        assert all((REPOSITORY / test.partition("::")[0]).exists() for test in mutation.tests), mutation.name


def test_the_record_is_of_mutations_of_the_table() -> None:
    names = {mutation.name for mutation in TOOL.read_table()}
    record = TOOL.read_record()
    assert record.keys() <= names
    assert all(
        (REPOSITORY / each.test.partition("::")[0]).exists() for each in record.values() if "::" in each.test
    )


def test_a_text_that_moved_is_refused() -> None:
    with pytest.raises(
        TOOL.Failure, match=r"double: expected its old text once in 'pkg/maths\.py', found it 0"
    ):
        TOOL.Mutation(*RULE).apply("return x + x")


def test_mutations_are_chosen_by_words_and_by_killers() -> None:
    mutations = [TOOL.Mutation(name, *RULE[1:]) for name in ("gae-one", "gae-two", "q-one")]
    results = {"gae-one": TOOL.Result("gae-one", "killed", "tests/ops/test_gae.py::test_it", 1.0)}

    def names(*given: list[str]) -> list[str]:
        return [each.name for each in TOOL.chosen(mutations, results, *given)]

    assert names(["gae", "q-"], []) == ["gae-one", "gae-two", "q-one"]
    assert names([], ["tests/ops"]) == names(["gae"], ["tests/ops/test_gae.py"]) == ["gae-one"]
    assert names([], ["tests/op"]) == names(["two"], ["tests/ops"]) == []


@pytest.mark.process
def test_a_broken_rule_is_told_with_the_test_that_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in {
        "pkg/maths.py": "def double(x):\n    return 2 * x\n\n\ndef unseen():\n    return 1\n",
        "tests/pkg/test_maths.py": (
            "import pytest\nfrom pkg.maths import double\n\n\n@pytest.mark.unit\n"
            "def test_twice():\n    assert double(4) == 8\n"
        ),
        "pytest.ini": "[pytest]\nmarkers = unit\n",
        "mutations.yaml": (
            "pkg/maths.py:\n"
            "- {name: double, rule: it doubles, old: return 2 * x, new: return 3 * x}\n"
            "- {name: unseen, rule: it is one, old: return 1, new: return 2}\n"
        ),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    TOOL.subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(TOOL, "REPOSITORY", tmp_path)
    monkeypatch.setattr(TOOL.read_table, "__defaults__", (tmp_path / "mutations.yaml",))
    record = tmp_path / "record.jsonl"
    assert TOOL.main(["run", f"--record={record}"]) == 1
    assert "1 of 2 mutations were killed." in capsys.readouterr().out
    killed, survived = map(json.loads, record.read_text().splitlines())
    assert (killed["outcome"], killed["test"]) == ("killed", "tests/pkg/test_maths.py::test_twice")
    assert (survived["outcome"], survived["test"]) == ("survived", "")
    assert (tmp_path / "pkg/maths.py").read_text().count("2 * x") == 1
    TOOL.main(["survivors", f"--record={record}"])
    assert capsys.readouterr().out == "unseen\n"
