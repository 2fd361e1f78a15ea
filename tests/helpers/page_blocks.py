"""The blocks of pages that a reader copies: files, Python programs and commands, run in the order of the page.

As a program, in an empty folder: ``python page_blocks.py PAGE``, with the path of a page in the repository. Everything
runs in this one process. A comment in the page, which a reader does not see, stands before a block that does not run::

    <!-- not run: needs a clone -->
    <!-- not run (mlagents-style push): talks to the Hub -->
    <!-- prepared: mlagents-style learn basic --env=sim:basic --run-id=first -->

The first is about the whole block, the second about the lines that contain the text in parentheses. The third is a
command that runs before the block, for runs and files that the page takes for granted.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from trainer_service.cli import main
from trainer_service.commands.parser import build_parser
from trainer_service.config import load_run_options

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (
        REPOSITORY / "README.md",
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / "docs" / "trainers").glob("*.md"),
    )
)
"""Those for users. The commands below ``docs/results`` are measurements of many hours."""

STEPS, EPISODE_STEPS = 400, 20
"""Agent steps of a run, and the longest episode: enough to go through a page, too few to learn."""

SAVED_AS = re.compile(r"ave(?:d| this| it| the unit)? as `(?P<name>[\w./@-]+)`[^`]*\Z")
MARK = re.compile(r"<!-- (?P<what>not run|prepared)(?: \((?P<part>[^)]+)\))?: (?P<text>.+?) -->")
SCRIPTS = ("py", "sh", "bash")
"""Languages of fenced blocks that are saved, or marked as not run. A block of another language but Python is a file
if the page names it, else an example of a file or of output."""

OTHERS = {
    **dict.fromkeys((".", "make", "pip", "python", "python3", "python3.11"), "installs, or needs a clone"),
    **dict.fromkeys(("curl", "hf", "ssh"), "talks to another program or machine"),
    **dict.fromkeys(("docker", "journalctl", "ray", "sudo", "torchrun"), "changes the machine"),
    **dict.fromkeys(("mlagents-learn", "tensorboard"), "is a program of others"),
}
"""Programs of others at the beginning of a line, with the reason why the line does not run."""

NEEDS = ("gymnasium", "mpe2", "pygame", "optuna", "lbforaging")
"""Modules of optional libraries that some pages import."""


class Block(NamedTuple):
    """A file to save, a Python program or a command."""

    kind: Literal["file", "python", "command"]
    text: str
    line: int
    """Where it stands in the page."""
    name: str = ""
    """Of the file that a program or another file is saved as; empty if the page names none."""
    not_run: str = ""
    """The reason why it does not run."""


def blocks_of(page: str | Path) -> Iterator[Block]:
    """Yields the blocks of a page in its order. Fails where a mark is about nothing."""
    marks: list[re.Match[str]] = []
    before = ""
    for number, text, language in _parts((REPOSITORY / page).read_text(encoding="utf-8")):
        if language is None:  # prose
            marks += MARK.finditer(text)
            before += text
            continue
        yield from (Block("command", each["text"], number) for each in marks if each["what"] == "prepared")
        skipped = {each["part"] or "": each["text"] for each in marks if each["what"] == "not run"}
        name = Path(saved["name"]).name if (saved := SAVED_AS.search(MARK.sub("", before))) else ""
        used = set()
        for block in _blocks(number, text, language, name):
            part = next((each for each in skipped if each in block.text), None)
            used |= {part}
            assert part is not None or language not in SCRIPTS or name, (
                f"{page}:{number} neither runs nor says why"
            )
            yield block if part is None else block._replace(not_run=skipped[part])
        assert used >= set(skipped), f"{page}:{number}: a reason that no line needs: {set(skipped) - used}"
        marks, before = [], ""
    assert not marks, f"{page}: a mark without a block"


def _parts(text: str) -> Iterator[tuple[int, str, str | None]]:
    """Yields the parts of a page: line number, text and language; None for prose, empty for indented blocks."""
    part, number, language = "", 1, None
    fenced = False
    for at, line in enumerate(text.splitlines(keepends=True), start=1):
        fence = re.match(r"```(\S*)", line)
        indented = bool(line.startswith("    ") or (language == "" and not fenced and not line.strip()))
        if fence and not fenced:
            yield number, part, language
            part, number, language, fenced = "", at + 1, fence[1] or "text", True
        elif fence:
            yield number, part, language
            part, number, language, fenced = "", at + 1, None, False
        elif not fenced and indented != (language == ""):
            yield number, part, language
            part, number, language = line, at, "" if indented else None
        else:
            part += line
    yield number, part, language


def _blocks(number: int, text: str, language: str, name: str) -> Iterator[Block]:
    if language == "python":
        yield Block("python", text, number, name)
    elif name:
        yield Block("file", text, number, name)
    elif language in SCRIPTS:
        yield Block("command", text, number)
    elif not language:
        yield from _commands(number, text)


def _commands(number: int, text: str) -> Iterator[Block]:
    """Yields the commands of an indented block, those of a shell's loop once for each value."""
    loop, values = "", [""]
    repeated: list[Block] = []
    for at, line in enumerate(text.replace("\\\n", "  ").splitlines(), start=number):
        # Two blanks or more before a '#' begin a comment.
        words = re.split(r"\s{2,}#", line.strip())[0]
        first = re.sub(r"^(\w+=\S+ )+", "", words).partition(" ")[0].rpartition("/")[2]
        if start := re.fullmatch(r"for (\w+) in (.+); do", words):
            loop, values = start[1], start[2].split()
        elif words == "done":
            for value in values:
                yield from (each._replace(text=each.text.replace(f"${loop}", value)) for each in repeated)
            loop, repeated = "", []
        elif first == "mlagents-style" or first in OTHERS:
            block = Block("command", words, at, not_run=OTHERS.get(first, ""))
            if loop:
                repeated.append(block)
            else:
                yield block


WITH_BLOCKS = [page for page in PAGES if not all(block.not_run for block in blocks_of(page))]
"""Pages of which anything runs."""


def run_page(page: str, folder: Path) -> None:
    """Runs the blocks of a page in the current folder, each shortened, and prints what does not run.

    Args:
        page: its path in the repository.
        folder: the current folder, which is empty.
    """
    write_builds(folder)
    counts = {"run": 0, "not run": 0}
    for block in blocks_of(page):
        counts["not run" if block.not_run else "run"] += 1
        if block.not_run:
            print(f"{page}:{block.line}: not run, {block.not_run}: {block.text.splitlines()[0]}", flush=True)
            continue
        print(f"{page}:{block.line}: {block.text.splitlines()[0]}", flush=True)
        if block.kind == "file":
            (folder / block.name).write_text(block.text)
        elif block.kind == "python":
            program = folder / (block.name or f"line_{block.line}.py")
            program.write_text(shortened_program(block.text))
            runpy.run_path(str(program), run_name="__main__")
        else:
            _run_command(block.text, folder)
    print(f"{page}: {counts['run']} blocks ran, {counts['not run']} did not")


def _run_command(line: str, folder: Path) -> None:
    line, _, output = line.partition(" > ")
    arguments = shortened_command(line, folder / "results", folder)
    if arguments[0] == "serve":
        _start_service(arguments)
        return
    with contextlib.ExitStack() as stack:
        if output:
            (folder / output).parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / output).open("w"))
            stack.enter_context(contextlib.redirect_stdout(file))
        code = main(arguments)
    assert code == 0, f"{shlex.join(arguments)} ended with {code}"


_services: list[subprocess.Popen[str]] = []


def _start_service(arguments: Sequence[str]) -> None:
    """Starts a service in a process of its own, which ends with the page, or before the next one."""
    while _services:
        before = _services.pop()
        before.kill()
        before.wait()
    command = [sys.executable, "-m", "trainer_service", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    _services.append(process)
    atexit.register(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Serving at"), f"{shlex.join(arguments)} ended"


def shortened_program(text: str) -> str:
    """A Python program with few steps and episodes."""
    text = re.sub(
        r'\b((?:train|sweep)\(\s*)"(cartpole|basic)"', lambda found: found[1] + _short(found[2]), text
    )
    text = re.sub(r"\btrain\((?=env=)(?!.*max_env_steps)", f"train(max_env_steps={STEPS}, ", text)
    text = re.sub(r"\btrials=\d+", "trials=2", text)
    text = text.replace('"learn", ', f'"learn", "--max-env-steps={STEPS}", ')
    text = re.sub(r"\b\d+_000\b", str(STEPS), text)
    return re.sub(r"\bepisodes=\d+", "episodes=1", re.sub(r'"--episodes", "\d+"', '"--episodes", "1"', text))


def _short(name: str) -> str:
    """A bundled configuration with few steps, as a Python program says it."""
    configuration = yaml.safe_load((REPOSITORY / "configs" / f"{name}.yaml").read_text(encoding="utf-8"))
    for settings in configuration["behaviors"].values():
        settings.update(max_steps=STEPS, summary_freq=40)
    return repr(configuration)


def shortened_command(line: str, results: Path, folder: Path) -> list[str]:
    """The arguments of a command, with few steps, episodes and simulators.

    Alternatives that a page lists for one run id replace each other, and a build stands for the Unity Editor, which
    would attach where a command names no environment.
    """
    words = shlex.split(line)[1:]
    command, *rest = words
    split = rest.index("--env-args") if "--env-args" in rest else len(rest)
    own, of_env = rest[:split], rest[split:]
    own = [each for word in own for each in sorted(glob.glob(word)) or [word]]  # as a shell does
    own = [re.sub(r"^--num-envs=\d+$", "--num-envs=2", word) for word in own]
    own = [re.sub(r"^1-\d+$", "1-2", word) for word in own]
    if command == "learn":
        own += _short_run(own, results, folder)
    elif command in ("evaluate", "play", "record-demo"):
        own += ["--episodes", "1", "--max-episode-steps", str(EPISODE_STEPS)]
        if "--record" in own:
            own += ["--record-seconds", "1"]
    elif command == "sweep":
        own += ["--trials", "2", "--jobs", "1", *_few_steps(Path(own[0]))]
    elif command == "suggest" and not any(word.startswith("--env") for word in own):
        own += [f"--env={BUILD}"]
    elif command == "push":
        own += ["--episodes", "1"]
    elif command == "clone":
        own += ["--epochs", "1"]
    return [command, *own, *of_env]


def _short_run(own: Sequence[str], results: Path, folder: Path) -> Iterator[str]:
    """Yields flags that make a run short, and one whose id is taken possible."""
    given = vars(build_parser().parse_args(["learn", *own]))
    named = given["trainer_config_path"]
    if named is None:  # the trainer chooses the settings
        yield f"--max-env-steps={STEPS}"
        if "env_path" not in given:
            yield f"--env={BUILD}"
    else:
        config = folder / named if (folder / named).is_file() else named
        yield from _few_steps(config)
        waits = "env_path" not in given and "resume" not in given
        if waits and load_run_options(config).options.env_settings.env_path is None:
            yield f"--env={BUILD}"
    if (results / given["run_id"]).is_dir() and not {"resume", "force"} & given.keys():
        yield "--force"


def _few_steps(config: Path) -> Iterator[str]:
    """Yields the settings of a short run for every behavior of a configuration."""
    options = load_run_options(config).options
    for section in [f"behaviors.{name}" for name in options.behaviors] or ["default_settings"]:
        yield f"--set={section}.max_steps={STEPS}"
        yield f"--set={section}.summary_freq=40"


BUILD = "builds/Walker"


def write_builds(folder: Path) -> None:
    """Writes programs that behave like Unity builds with the behavior ``Walker``."""
    (folder / "builds").mkdir()
    for name in ("Walker", "Ball"):
        _write_build(folder / "builds" / name)


def _write_build(path: Path) -> None:
    path.write_text(
        f"#!{sys.executable}\n"
        "import argparse, sys\n"
        f"sys.path += [{str(REPOSITORY / 'tests' / 'programs')!r}]\n"
        "import treadmill\n"
        "from unity_bridge.simulators.client import run\n"
        'treadmill.BEHAVIOR = "Walker?team=0"\n'
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--mlagents-port", type=int)\n'
        "port = parser.parse_known_args()[0].mlagents_port\n"
        "scene = treadmill.Treadmill()\n"
        "run(scene, port, connect_timeout_s=30.0)\n"
    )
    path.chmod(0o755)


def program(page: str) -> None:
    """Runs a page as if its reader had typed it into this process."""
    sys.path[0] = str(Path.cwd())
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run_page(page, Path.cwd())


if __name__ == "__main__":
    program(sys.argv[1])
