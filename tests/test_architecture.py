"""The order of folders: protos ← unity_bridge ← trainer_service, and inside these as listed here."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

LEAVES = (
    "trainer_service.running.interop",
    "trainer_service.running.metrics.trackers",
    "trainer_service.running.monitoring",
)
"""Extras of a run: no core module imports one. The commands hand them over."""

ORDER: tuple[tuple[str, ...], ...] = (
    ("unity_bridge.wire",),
    ("unity_bridge",),
    ("unity_bridge.codec",),
    ("unity_bridge.side_channels", "unity_bridge.transport", "unity_bridge.demonstrations"),
    ("unity_bridge.remote", "unity_bridge.serving"),
    (
        "unity_bridge.simulators",
        "unity_bridge.simulators.foreign",
        "unity_bridge.simulators.foreign.lookup",
        "unity_bridge.simulators.group_scenes",
        "unity_bridge.simulators.rendering",
        "unity_bridge.simulators.scenes",
    ),
    ("unity_bridge.programs", "unity_bridge.server"),
    ("unity_bridge.relay",),
    ("unity_bridge.environment",),
    ("trainer_service._version", "trainer_service.errors", "trainer_service.plugins"),
    ("trainer_service.ops",),
    (
        "trainer_service.config",
        "trainer_service.config.hyperparameters",
        "trainer_service.config.reading",
        "trainer_service.config.run",
    ),
    ("trainer_service.learning.rollout",),
    (
        "trainer_service.learning.replay",
        "trainer_service.learning.networks",
        "trainer_service.learning.networks.critics",
        "trainer_service.learning.networks.encoders",
        "trainer_service.learning.networks.groups",
        "trainer_service.learning.networks.policies",
    ),
    ("trainer_service.learning.kernels", "trainer_service.learning.kernels.compiled"),
    ("trainer_service.learning.imitation", "trainer_service.learning.rewards"),
    (
        "trainer_service.learning.algorithms",
        "trainer_service.learning.algorithms.common",
        "trainer_service.learning.algorithms.common.off_policy",
        "trainer_service.learning.algorithms.common.on_policy",
        "trainer_service.learning.algorithms.off_policy",
        "trainer_service.learning.algorithms.on_policy",
    ),
    ("trainer_service.learning",),
    ("trainer_service.running", "trainer_service.running.curriculum", "trainer_service.running.runs"),
    ("trainer_service.running.metrics",),
    ("trainer_service.running.callbacks", "trainer_service.running.policy"),
    ("trainer_service.running.serving",),
    ("trainer_service.running.collection",),
    ("trainer_service.running.behaviors",),
    ("trainer_service.running.evaluation",),
    ("trainer_service.running.training", *LEAVES),
    ("trainer_service.distributed", "trainer_service.distributed.learners"),
    ("trainer_service.commands", "trainer_service.commands.common"),
    (
        "trainer_service.commands.compare",
        "trainer_service.commands.configs",
        "trainer_service.commands.doctor",
        "trainer_service.commands.status",
    ),
    ("trainer_service.commands.report", "trainer_service.commands.suggest", "trainer_service.commands.watch"),
    ("trainer_service.commands.play", "trainer_service.commands.train"),
    ("trainer_service.commands.demos", "trainer_service.commands.search", "trainer_service.commands.share"),
    ("trainer_service.commands.learn",),
    ("trainer_service.commands.parser",),
    ("trainer_service.commands.main",),
    ("trainer_service.__main__", "trainer_service.cli", "trainer_service"),
)
"""Folders, and modules that stand apart from theirs, in the order in which they may import: a module imports its own
rank and those before it. The longest name that fits a module counts."""

NEVER = {
    "unity_bridge": ("torch", "trainer_service", "pydantic", "tensorboard", "rich"),
    "trainer_service.learning.rollout": ("torch",),
    "trainer_service.config": ("torch", "numpy"),
    "trainer_service.ops": ("grpc", "google", "unity_bridge", "trainer_service"),
    "trainer_service": ("grpc", "google", "unity_bridge.wire"),
}
"""What a package, and everything below it, must not import."""


MOST_FILES = 16
"""Files of a folder that one glance takes in."""


def sources() -> list[Path]:
    packages = ("unity_bridge", "trainer_service")
    return [path for package in packages for path in sorted((REPOSITORY / package).rglob("*.py"))]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file; ``from a import b`` names a.b too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively: say the whole name"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def lies_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def lies_in_any(module: str, packages: Sequence[str]) -> bool:
    return any(lies_in(module, package) for package in packages)


def rank(module: str) -> int:
    """The position of a module in the order."""
    found = [
        (len(name), position)
        for position, names in enumerate(ORDER)
        for name in names
        if lies_in(module, name)
    ]
    _, position = max(found)
    return position


@functools.cache
def is_ours(module: str) -> bool:
    path = REPOSITORY.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@functools.cache
def imported_modules(path: Path) -> frozenset[str]:
    """Modules of ours that a file imports; a package only where something is taken from its ``__init__``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if is_ours(alias.name)}
        elif isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if is_ours(name) else str(node.module) for name in names}
    return frozenset(found)


def test_imports_follow_the_order() -> None:
    for path in sources():
        here = module_of(path)
        for module in imported_modules(path):
            assert rank(module) <= rank(here), f"{here} must not import {module}"


def test_no_import_closes_a_cycle() -> None:
    """Module-level, lazy and typing-only imports count alike."""
    graph = {module_of(path): imported_modules(path) - {module_of(path)} for path in sources()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_leaves_are_imported_by_commands_alone() -> None:
    for path in sources():
        here = module_of(path)
        if not here.startswith("trainer_service.commands."):
            others = [name for name in LEAVES if not lies_in(here, name)]
            wrong = {module for module in imported_modules(path) if lies_in_any(module, others)}
            assert not wrong, f"{here} must not import {wrong}: let a command hand it over"


def test_every_folder_has_a_rank_of_its_own() -> None:
    ranked = {name for names in ORDER for name in names}
    folders = {module_of(path.parent / "__init__.py") for path in sources()}
    assert not folders - ranked


def test_every_ranked_name_exists() -> None:
    for name in (*(name for names in ORDER for name in names), *NEVER):
        assert is_ours(name), name


def test_root_modules_have_ranks_of_their_own() -> None:
    last = [module_of(path) for path in sources() if rank(module_of(path)) == len(ORDER) - 1]
    assert last == ["trainer_service", "trainer_service.__main__", "trainer_service.cli"]


@pytest.mark.parametrize("package", ["unity_bridge", "trainer_service"])
def test_no_folder_is_crowded(package: str) -> None:
    counts = Counter(path.parent for path in sources() if path.is_relative_to(REPOSITORY / package))
    crowded = {folder: count for folder, count in counts.items() if count > MOST_FILES}
    assert not {folder for folder in crowded if folder.name != "wire"}, "the wire is generated"


@pytest.mark.parametrize("package", NEVER)
def test_packages_keep_off_what_they_never_import(package: str) -> None:
    inside = [path for path in sources() if lies_in(module_of(path), package)]
    assert inside
    for path in inside:
        for module in imports(path):
            if lies_in(module, package):
                continue
            unwanted = [other for other in NEVER[package] if lies_in(module, other)]
            assert not unwanted, f"{module_of(path)} must not import {module}"
