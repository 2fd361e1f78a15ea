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
    "docs/coming-from-stable-baselines3.md",
    "docs/configuration.md",
    "docs/groups.md",
    "docs/python-api.md",
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
