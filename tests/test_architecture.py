"""Arrows point one way: protos ← unity_bridge ← trainer_service, and inside these as listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

PLACES: tuple[tuple[str, ...], ...] = (
    ("unity_bridge.wire",),
    ("unity_bridge",),
    ("trainer_service._version", "trainer_service.errors"),
    ("trainer_service.ops",),
    ("trainer_service.config",),
    ("trainer_service.curriculum",),
    ("trainer_service.runs",),
    ("trainer_service.metrics",),
    ("trainer_service.rollout", "trainer_service.replay", "trainer_service.networks"),
    ("trainer_service.imitation",),
    ("trainer_service.rewards",),
    ("trainer_service.algorithms",),
    ("trainer_service.callbacks", "trainer_service.published_names"),
    ("trainer_service.policy",),
    ("trainer_service.behaviors", "trainer_service.interop"),
    ("trainer_service.evaluation",),
    ("trainer_service.training",),
    ("trainer_service.demonstrations", "trainer_service.doctor"),
    ("trainer_service.cli",),
    ("trainer_service.__main__", "trainer_service"),
)
"""From left to right. A module may import its own place and those before it; the longest prefix counts."""

NEVER = {
    "unity_bridge": ("torch", "trainer_service", "pydantic", "tensorboard", "rich"),
    "trainer_service.rollout": ("torch",),
    "trainer_service.config": ("torch", "numpy"),
    "trainer_service.ops": ("grpc", "google", "unity_bridge", "trainer_service"),
    "trainer_service": ("grpc", "google", "unity_bridge.wire"),
}
"""What these, and everything below them, must not import from outside."""


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


def place(module: str) -> int:
    """Where a module stands from left to right."""
    found = [
        (len(package), position)
        for position, packages in enumerate(PLACES)
        for package in packages
        if lies_in(module, package)
    ]
    _, position = max(found)
    return position


def is_ours(module: str) -> bool:
    path = REPOSITORY.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_imports_follow_the_arrow() -> None:
    for path in sources():
        here = module_of(path)
        for module in filter(is_ours, imports(path)):
            assert place(module) <= place(here), f"{here} must not import {module}"


def test_every_module_of_the_trainer_has_a_place_of_its_own() -> None:
    at_the_end = [module_of(path) for path in sources() if place(module_of(path)) == len(PLACES) - 1]
    assert at_the_end == ["trainer_service", "trainer_service.__main__"]


@pytest.mark.parametrize("package", NEVER)
def test_what_a_package_never_imports(package: str) -> None:
    inside = [path for path in sources() if lies_in(module_of(path), package)]
    assert inside
    for path in inside:
        for module in imports(path):
            if lies_in(module, package):
                continue
            unwanted = [other for other in NEVER[package] if lies_in(module, other)]
            assert not unwanted, f"{module_of(path)} must not import {module}"


def test_the_arrow_would_notice(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("def late():\n    from trainer_service import cli\n    import torch.nn\n")
    assert list(imports(path)) == ["trainer_service", "trainer_service.cli", "torch.nn"]
    assert (
        place("trainer_service.cli")
        > place("trainer_service.ops.losses")
        > place("unity_bridge.server.bridge")
    )
