"""What a release is made of agrees: the lock of developers, the address of the repository, the workflow."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml
from loaded_files import module_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).parents[1]
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.]+)", re.MULTILINE)
RENEW = "renew it: make lock"


set_address = module_of(REPOSITORY / "tools" / "set_address.py")


def project() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())[
        "project"
    ]
    return found


def requirements(*extras: str) -> Iterator[Requirement]:
    """The direct dependencies, those of extras and of what extras name of ours included."""
    wanted = [*project()["dependencies"], *(text for each in extras for text in optional(each))]
    for text in wanted:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == "trainer-service":
            yield from requirements(*requirement.extras)
        else:
            yield requirement


def optional(extra: str) -> list[str]:
    return project()["optional-dependencies"][extra]


def lock() -> str:
    return (REPOSITORY / "requirements-dev.txt").read_text()


def test_the_lock_has_every_dependency_of_developers_within_its_bounds() -> None:
    pins: dict[str, list[Version]] = {}
    for match in PIN.finditer(lock()):
        pins.setdefault(canonicalize_name(match["name"]), []).append(Version(match["version"]))
    for requirement in requirements("dev", "docs"):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"requirements-dev.txt has no {name}; {RENEW}"
        for version in pins[name]:
            assert version in requirement.specifier, (
                f"{name} {version} is not {requirement.specifier}; {RENEW}"
            )


def test_every_pin_has_a_hash_and_no_address() -> None:
    entries = re.split(r"\n(?=\w)", lock().partition("make lock\n")[2])
    assert len(entries) > 50
    assert all(" --hash=sha256:" in entry for entry in entries)
    assert "://" not in lock()


def test_pages_and_notebooks_name_the_address_of_the_project() -> None:
    named = {
        path.name: set(set_address.named_addresses(path.read_text(encoding="utf-8")))
        for path in set_address.copies()
    }
    for name in ("README.md", "gymnasium.ipynb", "unity.ipynb"):
        assert named[name], f"{name} does not say where to install from"
    assert set().union(*named.values()) == {set_address.address()}
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["repository-code"] == set_address.address()


def test_one_command_sets_the_address_everywhere(tmp_path: Path) -> None:
    for path in set_address.copies():
        target = tmp_path / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    old, new = set_address.address(tmp_path), "https://host.example/owner/new-name"
    changed = set_address.set_address(new, tmp_path)
    assert {"pyproject.toml", "README.md", "CITATION.cff", "unity.ipynb"} <= {path.name for path in changed}
    assert set_address.address(tmp_path) == new
    assert not any(old in path.read_text(encoding="utf-8") for path in set_address.copies(tmp_path))


def own_names() -> list[str]:
    """The names of the distributions in the repository. No package index has them, so anybody could register them."""
    projects = [REPOSITORY / "pyproject.toml", *(REPOSITORY / "examples").glob("*/pyproject.toml")]
    return [tomllib.loads(path.read_text())["project"]["name"] for path in projects]


def installed_by_name(text: str) -> list[str]:
    """The lines of a text that install a distribution of the repository by its name alone: no path, no address."""
    names = "|".join(re.sub("[-_.]+", "[-_.]+", name) for name in own_names())
    by_name = re.compile(
        rf"pip\d? install [^`\n]*(?<![\w/.-])(?:{names})(?![\w/-])(?![^`\n]* @ )", re.IGNORECASE
    )
    return [match.group() for match in by_name.finditer(text.replace("\\\n", " "))]


def test_nothing_installs_the_project_by_a_name_that_anybody_could_register() -> None:
    folders = (
        "configs", "docs", "examples", "benchmarks", "tools", "trainer_service", "unity_bridge", ".github",
    )  # fmt: skip
    paths = [
        *REPOSITORY.glob("*.md"),
        *(each for folder in folders for each in (REPOSITORY / folder).rglob("*")),
    ]
    texts = {
        path: path.read_text("utf-8")
        for path in paths
        if path.suffix in (".md", ".py", ".ipynb", ".yaml", ".yml", ".sh")
    }
    assert sum("pip install" in text for text in texts.values()) > 20
    assert not {path.name: found for path, text in texts.items() if (found := installed_by_name(text))}


def test_publishing_waits_for_every_other_job() -> None:
    jobs = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
