"""Blocks of pages run as they stand, in their order, in an empty folder: files, programs and commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import page_blocks
import pytest

QUICK = {
    "README.md",
    "docs/automation.md",
    "docs/callbacks.md",
    "docs/configuration.md",
    "docs/coming-from-epymarl.md",
    "docs/coming-from-pettingzoo.md",
    "docs/coming-from-rllib.md",
    "docs/coming-from-stable-baselines3.md",
    "docs/demonstrations.md",
    "docs/groups.md",
    "docs/learners-in-your-program.md",
    "docs/migrating-from-ml-agents.md",
    "docs/on-a-server.md",
    "docs/python-api.md",
    "docs/running.md",
    "docs/scenes-in-python.md",
    "docs/self-play.md",
    "docs/value-methods.md",
}
"""The pages that CI runs; `make test-all` runs every one."""


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page in QUICK else [pytest.mark.thorough])
        for page in page_blocks.WITH_BLOCKS
    ],
)
def test_blocks_run_in_the_order_of_the_page(page: str, tmp_path: Path) -> None:
    for module in page_blocks.NEEDS:
        pytest.importorskip(module)
    command = [sys.executable, page_blocks.__file__, page]
    done = subprocess.run(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout


def test_what_does_not_run_is_few_and_has_a_reason() -> None:
    blocks = [(page, block) for page in page_blocks.PAGES for block in page_blocks.blocks_of(page)]
    skipped = [(page, block) for page, block in blocks if block.not_run]
    for page, block in skipped:
        print(f"{page}:{block.line}: not run, {block.not_run}: {block.text.splitlines()[0]}")
    ours = [block for _, block in skipped if block.not_run not in page_blocks.OTHERS.values()]
    assert len(skipped) < len(blocks) / 3
    assert len(ours) < len(blocks) / 5


FIRST_PAGES = ("README.md", "docs/index.md")


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_first_commands_follow_the_activation_of_their_environment(page: str) -> None:
    blocks = [block.text for block in page_blocks.blocks_of(page)]
    lines = [text for text in blocks if not text.startswith("import ")]
    first = next(number for number, line in enumerate(lines) if line.startswith("mlagents-style"))
    assert lines[:2] == ["make learn", ". .venv/bin/activate"]
    assert first > 1


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_a_run_id_is_of_one_run_and_was_made_before_it_is_used(page: str) -> None:
    made: set[str] = set()
    for block in page_blocks.blocks_of(page):
        ids = set(re.findall(r"run.id=\"?([\w-]+)", block.text))
        if "--resume" in block.text:
            assert ids <= made, f"{page}:{block.line}: {block.text}"
        else:
            assert not ids & made, f"{page}:{block.line}: {block.text} names a run of an earlier block"
        made |= ids
        used = re.match(r"mlagents-style (?:evaluate|compare|push|watch) ([a-z ]+?)(?: --|$)", block.text)
        assert not used or {*used[1].split()} <= made, f"{page}:{block.line}: {block.text}"


def dry_run(target: str) -> list[str]:
    """Returns the lines of a recipe. What a make around the suite passes on is left out."""
    command = ["make", "--dry-run", "--always-make", target, "VENV=there"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        command, cwd=page_blocks.REPOSITORY, env=outside, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.process
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["learn", "demo"])
def test_make_installs_the_extras_of_the_first_lines_and_says_how_to_go_on(target: str) -> None:
    lines = dry_run(target)
    assert lines[-1].endswith('echo "Go on:       . there/bin/activate"')
    of_make = next(re.findall(r'--editable "\.\[(.+)\]"', line) for line in lines if "--editable" in line)
    readme = (page_blocks.REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert re.findall(r'^    pip install -e "\.\[(.+?)\]"', readme, re.MULTILINE) == of_make
    project = tomllib.loads((page_blocks.REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    needed = [text for each in of_make[0].split(",") for text in project["optional-dependencies"][each]]
    for package in ("gymnasium[classic-control]", "starlette", "uvicorn"):
        assert any(text.startswith(package) for text in needed)
    assert not any("box2d" in text for text in needed), (
        "a wheel that is missing would break the first command"
    )


WRONG_MARKS = {
    "a reason that no line needs": "<!-- not run (watch): opens a page -->\n\n    mlagents-style configs\n",
    "a mark without a block": "    mlagents-style configs\n\n<!-- not run: opens a page -->\n",
    "neither runs nor says why": "```py\nimport ray\n```\n",
}


@pytest.mark.parametrize("message", WRONG_MARKS)
def test_marks_fit_their_blocks(message: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(WRONG_MARKS[message])
    with pytest.raises(AssertionError, match=message):
        list(page_blocks.blocks_of(str(tmp_path / "page.md")))


def test_lines_of_a_page_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    found = [
        (*block[:2], block.name, block.not_run) for block in page_blocks.blocks_of(str(tmp_path / "page.md"))
    ]
    assert found == [
        ("command", "mlagents-style suggest > a.yaml", "", ""),
        ("command", "pip install x", "", page_blocks.OTHERS["pip"]),
        ("command", "mlagents-style learn a.yaml", "", ""),
        ("command", "mlagents-style push a", "", "needs an account"),
        ("python", "print(1)\n", "one.py", ""),
        ("command", "mlagents-style learn b --seed 1", "", ""),
        ("command", "mlagents-style learn b --seed 2", "", ""),
    ]


PAGE = """# A page

<!-- prepared: mlagents-style suggest > a.yaml -->
<!-- not run (push): needs an account -->

    pip install x               # comment
    mlagents-style learn a.yaml     # comment
    mlagents-style push a

    [INFO] output

Save this as `one.py`:

```python
print(1)
```

    for seed in 1 2; do
      mlagents-style learn b --seed $seed
    done
"""
