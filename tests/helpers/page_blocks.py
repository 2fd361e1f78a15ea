"""The blocks of a page that a reader copies: files, Python programs and commands, in the order in which they stand."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from trainer_service.cli.arguments import build_parser
from trainer_service.config import load_run_options

REPOSITORY = Path(__file__).parents[2]

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED_AS = re.compile(r"ave(?:d| this| the unit)? as `(?P<name>[\w./@-]+)`[^`]*\Z")
COMMAND = re.compile(r"^    (?P<line>mlagents-style .+)$", re.MULTILINE)

STEPS, EPISODE_STEPS = 120, 20
"""Agent steps of a run, and the longest episode: enough to go through a page, too few to learn."""


_PAGE = "a page in the browser, until Ctrl-C"
_SEEDS = "starts several trainers, see tests of the command"
_BOX2D = "Box2D crashes a process that loads it after other libraries, as one of many tests does"
_HUB = "talks to the Hugging Face Hub"
_MINARI = "needs a data set of Minari"

SKIPPED: Mapping[str, Mapping[str, str]] = {
    "README.md": {"mlagents-style watch": _PAGE, "mlagents-style push": _HUB, "gym:LunarLander-v3": _BOX2D},
    "docs/automation.md": {},
    "docs/running.md": {
        "mlagents-style push": _HUB,
        "mlagents-style load": _HUB,
        "--seeds": _SEEDS,
        "compare balls": _SEEDS,
        "--checkpoint best": "needs a run with evaluations",
        "duel@200000": "needs a run of that length",
    },
    "docs/demonstrations.md": {
        "builds/Walker": "needs a run on a build",
        "minari:": _MINARI,
        "walker.demo": _MINARI,
    },
    "docs/scenes-in-python.md": {},
    "docs/sweeps.md": {},
}
"""Pages, and the parts of their blocks that do not run, with the reason. Lines of make, pip and others do not run."""


class Block(NamedTuple):
    """A file to save, a Python program or a command."""

    kind: Literal["file", "python", "command"]
    text: str
    name: str = ""
    """Of the file that a program or another file is saved as; empty if the page names none."""


def run_page(
    page: str, folder: Path, *, command: Callable[[list[str]], None], program: Callable[[str], None]
) -> None:
    """Runs the blocks of a page in a folder, each shortened.

    Args:
        page: its path in the repository.
        folder: an empty folder, the current one of commands and programs.
        command: runs ``mlagents-style`` with some arguments.
        program: runs a Python program.
    """
    write_builds(folder)
    used = set()
    for block in blocks_of(REPOSITORY / page):
        if part := next((each for each in SKIPPED[page] if each in block.text), ""):
            used.add(part)
        elif block.kind == "file":
            (folder / block.name).write_text(shortened_file(block.text))
        elif block.kind == "python" and block.name:
            (folder / block.name).write_text(block.text)
        elif block.kind == "python":
            program(shortened_program(block.text))
        else:
            command(shortened_command(block.text, folder / "results", folder))
    assert used == set(SKIPPED[page]), "a reason that no block needs any more"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yields the blocks of a page in its order."""
    text, end = page.read_text(encoding="utf-8"), 0
    for match in FENCE.finditer(text):
        yield from _commands(text[end : match.start()])
        saved = SAVED_AS.search(text[: match.start()])
        name = saved["name"] if saved else ""
        if match["language"] == "python":
            yield Block("python", match["text"], name)
        elif name:
            yield Block("file", match["text"], name)
        end = match.end()
    yield from _commands(text[end:])


def _commands(text: str) -> Iterator[Block]:
    for match in COMMAND.finditer(text):
        # Two blanks or more before a '#' begin a comment.
        yield Block("command", re.split(r"\s{2,}#", match["line"])[0])


def shortened_file(text: str) -> str:
    """A configuration with few steps and a summary; other files as they are."""
    return re.sub(
        r"^( +)max_steps: .*$", rf"\1max_steps: {STEPS}\n\1summary_freq: 40", text, flags=re.MULTILINE
    )


def shortened_program(text: str) -> str:
    """A Python program with few steps and episodes."""
    text = re.sub(r'\b(train|sweep)\((\s*)"(?:cartpole|basic)"', rf"\1(\2{_FEW_STEPS}", text)
    text = text.replace("trials=30", "trials=2")
    text = text.replace('"learn", ', f'"learn", "--max-env-steps={STEPS}", ')
    text = re.sub(r"\b\d+_000\b", str(STEPS), text)
    return re.sub(r"\bepisodes=\d+", "episodes=1", re.sub(r'"--episodes", "\d+"', '"--episodes", "1"', text))


_FEW_STEPS = f'{{"trainer_type": "ppo", "max_steps": {STEPS}, "summary_freq": 40}}'


def shortened_command(line: str, results: Path, folder: Path) -> list[str]:
    """The arguments of a command, with few steps, episodes and simulators.

    Alternatives that a page lists for one run id replace each other, and a build stands for the Unity Editor, which
    would attach where a command names no environment.
    """
    words = shlex.split(line)[1:]
    command, *rest = words
    split = rest.index("--env-args") if "--env-args" in rest else len(rest)
    own, of_env = rest[:split], rest[split:]
    own = [re.sub(r"^--num-envs=\d+$", "--num-envs=2", word) for word in own]
    if command == "learn":
        own += _short_run(own, results, folder)
    elif command in ("evaluate", "play", "record-demo"):
        own += ["--episodes", "1", "--max-episode-steps", str(EPISODE_STEPS)]
        if "--record" in own:
            own += ["--record-seconds", "1"]
    elif command == "sweep":
        own += ["--trials", "2", "--jobs", "1", *_few_steps(Path(own[0]))]
    elif command == "clone":
        own += ["--epochs", "1"]
    return [command, *own, *of_env]


def _short_run(own: Sequence[str], results: Path, folder: Path) -> Iterator[str]:
    """Yields flags that make a run short, and one whose id is taken possible."""
    given = vars(build_parser().parse_args(["learn", *own]))
    named = given["trainer_config_path"]
    if named is None:  # the trainer chooses the settings
        yield f"--max-env-steps={STEPS}"
    else:
        config = folder / named if (folder / named).is_file() else named
        yield from _few_steps(config)
        if "env_path" not in given and load_run_options(config).options.env_settings.env_path is None:
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
        f"sys.path += [{str(REPOSITORY / 'tests' / 'programs')!r}, {str(REPOSITORY)!r}]\n"
        "import treadmill\n"
        "from unity_bridge.simulators.client import run\n"
        'treadmill.BEHAVIOR = "Walker?team=0"\n'
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--mlagents-port", type=int)\n'
        "port = parser.parse_known_args()[0].mlagents_port\n"
        'scene = treadmill.Treadmill(treadmill.ACTIONS["hybrid"], group=False, endless=False)\n'
        "run(scene, port, connect_timeout_s=30.0)\n"
    )
    path.chmod(0o755)
