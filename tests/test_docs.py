"""The documentation holds: its commands parse, its links lead somewhere, its examples work."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import page_blocks
import pytest
import yaml

import trainer_service
from trainer_service._version import __version__
from trainer_service.commands import main as cli
from trainer_service.commands.parser import build_parser
from trainer_service.config import parse_run_options
from trainer_service.config.reading.used_plugins import PLUGIN_GROUPS
from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge, BridgeSettings, Tick
from unity_bridge.simulators import command as simulator
from unity_bridge.simulators.registry import GROUP_SCENES, SCENES
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(page for page in (REPOSITORY / "docs").rglob("*.md") if "_build" not in page.parts),
    ]
)

LINK = re.compile(r"\[[^]]*]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_LINE = re.compile(r"^    (?P<line>(?:mlagents-style|make|python) .+)$", re.MULTILINE)
CODE_SPAN = re.compile(r"`(?P<text>[^`\n]+)`")
SOURCE_FILE = re.compile(r"(?P<path>[\w./-]+\.(?:py|proto))(?:::\w+)?")
OUR_NAME = re.compile(r"(?P<name>(?:trainer_service|unity_bridge)(?:\.\w+)+)")
COMMANDS = (
    "learn", "check", "evaluate", "compare", "report", "status", "record-demo", "demo-info", "simulate", "export",
    "play", "watch", "demo", "clone", "demo-convert", "import-checkpoint", "push", "load", "serve",
    "schema", "doctor", "configs", "alias",
    "sweep", "relay", "suggest",
)  # fmt: skip
GROUPS = {group.group for group in PLUGIN_GROUPS}
"""Groups of entry points, which are no modules."""
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def label(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def everything() -> str:
    return "\n".join(map(text_of, PAGES))


def blocks(page: Path, language: str) -> list[str]:
    return [match["text"] for match in FENCE.finditer(text_of(page)) if match["language"] == language]


def command_lines(program: str) -> list[list[str]]:
    """The words after ``program`` in the indented lines of all pages, and in code spans."""
    text = everything()
    lines = [match["line"] for match in COMMAND_LINE.finditer(text)]
    lines += [match["text"] for match in CODE_SPAN.finditer(text)]
    # Two blanks or more before a '#' begin a comment; '>' or '|' and what follows is the shell's.
    bare = [re.split(r"\s{2,}#|\s[>|]\s", line)[0] for line in lines if line.startswith(f"{program} ")]
    return [shlex.split(line)[1:] for line in bare]


def anchors(page: Path) -> set[str]:
    """The names that headings have, as GitHub makes them."""
    kept = (re.sub(r"[^\w\- ]", "", match["text"]).strip() for match in HEADING.finditer(text_of(page)))
    return {text.lower().replace(" ", "-") for text in kept}


def relative_links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for match in LINK.finditer(text_of(page)):
            if "://" not in match["target"]:
                yield page, match["target"]


@pytest.mark.parametrize(
    ("page", "target"), [pytest.param(*link, id=str(link[1])) for link in relative_links()]
)
def test_links_lead_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    assert there.exists(), f"{label(page)} links to {target}"
    assert not anchor or anchor in anchors(there), f"{label(page)} links to {target}"


@pytest.mark.parametrize("arguments", command_lines("mlagents-style"), ids=" ".join)
def test_commands_parse(arguments: list[str]) -> None:
    _, unknown = build_parser().parse_known_args(arguments)
    assert not unknown
    if arguments[0] == "simulate":
        simulator.parse(arguments[1:])


def test_pages_name_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = set(re.findall(r"^    ([\w-]+)(?: |$)", capsys.readouterr().out, re.MULTILINE))
    assert listed == set(COMMANDS)
    assert listed <= {arguments[0] for arguments in command_lines("mlagents-style")}


def test_flags_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = set()
    for arguments in (*([name] for name in COMMANDS), ["simulate", "sim:basic"]):
        with pytest.raises(SystemExit):
            cli.main([*arguments, "--help"])
        known |= set(FLAG.findall(capsys.readouterr().out))
    spans = " ".join(match["text"] for match in CODE_SPAN.finditer(everything()))
    of_others = {"--strict", "--check", "--logdir"}  # of mypy, ruff and TensorBoard
    of_others |= {"--no-build-isolation", "--no-deps", "--wheel-dir", "--append"}  # of pip and wandb
    of_others |= {"--builds", "--python"}  # of benchmarks/
    of_others |= {"--files"}  # of tools/trace_paths.py
    of_others |= {"--stop-timeout", "--network"}  # of Docker
    of_others |= {"--config", "--env-config"}  # of EPyMARL
    hidden = {"--load", "--train", "--torch", "--tensorflow"}  # accepted, but nothing to recommend
    unknown = set(FLAG.findall(spans)) - known - of_others - hidden
    assert not unknown, f"no command of ours has {sorted(unknown)}"


@pytest.mark.parametrize("target", sorted({words[0] for words in command_lines("make") if words}))
def test_make_targets_exist(target: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)


@pytest.mark.parametrize(
    "script", sorted({words[0] for words in command_lines("python") if words[0] != "-m"})
)
def test_scripts_exist(script: str) -> None:
    assert (REPOSITORY / script).is_file()


@pytest.mark.parametrize("config", sorted((REPOSITORY / "configs").glob("*.yaml")), ids=label)
def test_a_page_names_every_bundled_configuration(config: Path) -> None:
    text = text_of(REPOSITORY / "docs" / "environments.md")
    assert re.search(rf"configs/{config.name}|mlagents-style learn {config.stem} ", text)


def test_the_site_has_every_page_and_every_public_name() -> None:
    listed = re.findall(r"^(?:.+<)?((?:\.\./)?[\w/.-]+)>?$", "".join(blocks_of_contents()), re.MULTILINE)
    pages = {(REPOSITORY / "docs" / f"{name}.md").resolve() for name in listed}
    assert set(PAGES) - pages == {REPOSITORY / "docs" / "index.md"}
    notebooks = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").glob("*/*.ipynb")}
    assert {path.with_suffix("").as_posix() for path in notebooks} <= set(listed)
    pages = sorted((REPOSITORY / "docs" / "api").glob("*.md"))
    entries = set(re.findall(r":: trainer_service\.(\w+)", "".join(text_of(page) for page in pages)))
    missing = set(trainer_service.__all__) - entries
    assert missing == {"__version__"}
    table = text_of(REPOSITORY / "docs" / "api.md")
    listed_names = set(re.findall(r"~trainer_service\.(\w+)$", table, re.MULTILINE))
    assert set(trainer_service.__all__) - listed_names == {"__version__", "EnvironmentLike"}


def test_the_gallery_shows_every_bundled_scene_and_stays_small() -> None:
    text = text_of(REPOSITORY / "docs" / "gallery.md")
    scenes = {*SCENES, *GROUP_SCENES} - {"switch3"}  # which looks like switch2 and switch4
    assert set(re.findall(r"--env=sim:(\w+)$", text, re.MULTILINE)) == scenes
    films = sorted((REPOSITORY / "docs/images/gallery").glob("*.gif"))
    assert {film.stem for film in films} == scenes
    assert all(f":img-top: images/gallery/{film.name}" in text for film in films)
    sizes = [film.stat().st_size for film in films]
    assert max(sizes) <= 150_000
    assert sum(sizes) <= 1_500_000


def blocks_of_contents() -> list[str]:
    """The names of pages in the tables of contents."""
    text = text_of(REPOSITORY / "docs" / "index.md")
    return re.findall(r"```\{toctree}\n(?::[^\n]*\n)*\n(.*?)```", text, re.DOTALL)


def test_who_cites_us_cites_this_version() -> None:
    assert yaml.safe_load(text_of(REPOSITORY / "CITATION.cff"))["version"] == __version__


def test_yaml_on_pages_is_valid() -> None:
    found = [block for page in PAGES for block in blocks(page, "yaml")]
    assert found
    for block in found:
        parse_run_options(yaml.safe_load(block))


def test_python_on_pages_imports_what_exists() -> None:
    found = [block for page in PAGES for block in blocks(page, "python")]
    saved = {name.removesuffix(".py") for page in page_blocks.PAGES for name in saved_files(page)}
    saved.add("policy")  # the runner of a bundle, which test_pages_run.py imports
    assert found
    for block in found:
        for node in ast.walk(ast.parse(block)):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and not node.module.startswith("mlagents_envs")
                and node.module not in saved
            ):
                assert all(resolves(f"{node.module}.{alias.name}") for alias in node.names), ast.unparse(node)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "trainer_service":
                assert hasattr(importlib.import_module("trainer_service"), node.attr), ast.unparse(node)


@pytest.mark.process
@pytest.mark.parametrize("example", ["sign.py", "sign_scene.py"])
def test_example_simulators_reward_the_right_sign(
    example: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = str(REPOSITORY / "docs" / "examples" / example)
    command = Command(env=example, executable=(sys.executable, program))
    with Bridge(BridgeSettings(seed=1, run_logs=tmp_path, timeout_wait_s=30)) as bridge:
        bridge.launch(command)
        spec, batches = converse(bridge, exchanges=4)
    assert spec.action_spec == ActionSpec(0, (2,))
    assert [sensor.name for sensor in spec.observation_specs] == ["number"]
    for batch in batches[1:]:
        assert batch.terminated[: batch.num_terminal].all()
        np.testing.assert_array_equal(batch.rewards, batch.terminated.astype(np.float32))
    assert "too old" not in caplog.text


@pytest.mark.process
def test_the_example_on_arrays_walks_to_the_middle() -> None:
    program = REPOSITORY / "docs" / "examples" / "ppo_on_arrays.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = re.fullmatch(r"mean return: (-?[\d.]+)\n", done.stdout)
    assert said, done.stdout
    assert float(said[1]) > 0.8


def saved_files(page: str) -> set[str]:
    """The names of files that a page lets its reader save."""
    return {block.name for block in page_blocks.blocks_of(page)} - {""}


@functools.cache
def source_files() -> frozenset[str]:
    """Every path that a page may mean: whole, or from one of its folders on."""
    found = set()
    for path in [*REPOSITORY.rglob("*.py"), *REPOSITORY.rglob("*.proto")]:
        parts = path.relative_to(REPOSITORY).parts
        found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_files_that_a_page_names_exist(page: Path) -> None:
    spans = (SOURCE_FILE.fullmatch(match["text"]) for match in CODE_SPAN.finditer(text_of(page)))
    missing = {span["path"] for span in spans if span} - source_files() - saved_files(label(page))
    assert not {path for path in missing if "NAME" not in path}


@pytest.mark.parametrize("package", ["trainer_service", "unity_bridge"])
def test_architecture_names_every_folder(package: str) -> None:
    tree = "\n".join(blocks(REPOSITORY / "ARCHITECTURE.md", ""))
    folders = {path.parent.name for path in (REPOSITORY / package).glob("*/__init__.py")}
    assert folders
    assert not {folder for folder in folders if f" {folder}/" not in tree}


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    for span in CODE_SPAN.finditer(text_of(page)):
        for match in OUR_NAME.finditer(span["text"]):
            known = match["name"] in GROUPS or resolves(match["name"])
            assert known, f"{label(page)} names {match['name']}"


def resolves(name: str) -> bool:
    """Whether a dotted name of ours is a module, or what lies in one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return bool(module) and hasattr(importlib.import_module(module), attribute)
    return True


def converse(bridge: Bridge, *, exchanges: int) -> tuple[BehaviorSpec, list[StepBatch]]:
    """Names every sign rightly. Returns the behavior and what was heard."""
    specs: Mapping[str, BehaviorSpec] = {}
    batches: list[StepBatch] = []
    while len(batches) < exchanges:
        for tick in bridge.receive(30.0):
            assert isinstance(tick, Tick), tick
            specs = specs or tick.new_specs
            ((behavior, batch),) = tick.steps.items()
            positive = batch.observations[0][batch.num_terminal :] > 0
            batches.append(batch)
            answer = ActionBatch(np.zeros((len(positive), 0), np.float32), positive.astype(np.int32))
            bridge.reply(tick.simulator, {behavior: answer})
    (spec,) = specs.values()
    return spec, batches
