"""Sets the address of the repository, in pyproject.toml and wherever a page or a notebook repeats it.

    python tools/set_address.py https://host.example/owner/trainer-service
    python tools/set_address.py --check-published   # changes nothing; fails while the address is a placeholder

``project.urls`` in pyproject.toml is the one place of the address: whatever else names it is a copy.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PLACEHOLDER = ".invalid"
"""The end of host names that lead nowhere (RFC 2606)."""

_ADDRESS = re.compile(r"https://[\w.-]+(?:/[\w.-]+)+")
_OURS = re.compile(rf"(?:git clone |trainer-service(?:\[[\w,]+\])? @ git\+)(?P<address>{_ADDRESS.pattern})")


def address(checkout: Path = CHECKOUT) -> str:
    """Returns the address of the repository."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def copies(checkout: Path = CHECKOUT) -> Iterator[Path]:
    """Yields the files that may repeat the address."""
    yield checkout / "pyproject.toml"
    yield checkout / "CITATION.cff"
    yield from sorted(checkout.glob("*.md"))
    yield from sorted(path for path in (checkout / "docs").rglob("*.md") if "_build" not in path.parts)
    yield from sorted((checkout / "docs" / "notebooks").glob("*.ipynb"))


def named_addresses(text: str) -> list[str]:
    """Returns the addresses from which a page clones or installs this project."""
    return [match["address"] for match in _OURS.finditer(text)]


def set_address(new: str, checkout: Path = CHECKOUT) -> list[Path]:
    """Writes a new address into every file that has the old one. Returns these files.

    Raises:
        ValueError: the new address is no https address of a repository.
    """
    if not _ADDRESS.fullmatch(new):
        raise ValueError(f"expected an address like https://host.example/owner/name, got '{new}'")
    old, changed = address(checkout), []
    for path in copies(checkout):
        before = path.read_text(encoding="utf-8")
        after = before.replace(old, new)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def main(argv: Sequence[str] | None = None) -> int:
    """Sets or checks the address. Returns the exit code."""
    parser = argparse.ArgumentParser(description="The address of the repository, in every place.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("address", nargs="?", help="the new address")
    what.add_argument("--check-published", action="store_true", help="fail while it is a placeholder")
    arguments = parser.parse_args(argv)
    if arguments.check_published:
        if PLACEHOLDER not in address():
            return 0
        print(f"{address()} is a placeholder: run python tools/set_address.py ADDRESS", file=sys.stderr)
        return 1
    try:
        for path in set_address(arguments.address):
            print(path.relative_to(CHECKOUT).as_posix())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
