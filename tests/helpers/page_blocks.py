"""The blocks of a page that a reader copies: files, Python programs and commands, in the order in which they stand."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from trainer_service.config import load_run_options

REPOSITORY = Path(__file__).parents[2]

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED_AS = re.compile(r"ave(?:d| this| the unit)? as `(?P<name>[\w./@-]+)`[^`]*\Z")
COMMAND = re.compile(r"^    (?P<line>mlagents-style .+)$", re.MULTILINE)

STEPS, EPISODE_STEPS = 120, 20
"""Agent steps of a run, and the longest episode: enough to go through a page, too few to learn."""


class Block(NamedTuple):
    """A file to save, a Python program or a command."""

    kind: Literal["file", "python", "command"]
    text: str
    name: str = ""
    """Of the file that a program or another file is saved as; empty if the page names none."""


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
    return re.sub(r"^( +)max_steps: .*$", rf"\1max_steps: {STEPS}\n\1summary_freq: 40", text, flags=re.MULTILINE)


def shortened_program(text: str) -> str:
    """A Python program with few steps and episodes."""
    text = re.sub(r'\btrain\("(?:cartpole|basic)"', f"train({_FEW_STEPS}", text)
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
    elif command == "clone":
        own += ["--epochs", "1"]
    return [command, *own, *of_env]


def _short_run(own: Sequence[str], results: Path, folder: Path) -> Iterator[str]:
    """Yields flags that make a run short, and one whose id is taken possible."""
    config = own[0]
    path = folder / config if (folder / config).is_file() else Path(config)
    options = load_run_options(path).options
    for section in [f"behaviors.{name}" for name in options.behaviors] or ["default_settings"]:
        yield f"--set={section}.max_steps={STEPS}"
        yield f"--set={section}.summary_freq=40"
    if not any(word.startswith("--env") for word in own):
        yield f"--env={BUILD}"
    run_id = next((word.partition("=")[2] for word in own if word.startswith("--run-id=")), "")
    if (results / run_id).is_dir() and not {"--resume", "--force"} & set(own):
        yield "--force"


BUILD = "builds/Walker"


def write_builds(folder: Path, python: str = sys.executable) -> None:
    """Writes programs that behave like Unity builds with the behavior ``Walker``."""
    (folder / "builds").mkdir()
    for name in ("Walker", "Ball"):
        _write_build(folder / "builds" / name, python)


def _write_build(path: Path, python: str) -> None:
    path.write_text(
        f"#!{python}\n"
        "import argparse, sys\n"
        f"sys.path.append({str(REPOSITORY / 'tests' / 'programs')!r})\n"
        "import treadmill\n"
        "from unity_bridge.simulators.client import run\n"
        'treadmill.BEHAVIOR = "Walker?team=0"\n'
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--mlagents-port", type=int)\n'
        "port = parser.parse_known_args()[0].mlagents_port\n"
        'run(treadmill.Treadmill(treadmill.ACTIONS["hybrid"], group=False, endless=False), port, connect_timeout_s=30.0)\n'
    )
    path.chmod(0o755)

