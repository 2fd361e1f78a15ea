"""Ready configurations that come with this package, by their names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
"""Folders of the configurations, once installed and in a checkout."""

_FIRST_SENTENCE = re.compile(r".+?[.:](?=\s|$)")
_COMMAND = re.compile(r"mlagents-style learn (?P<file>\S+) .*--env=(?P<env>\S+)")
_EDITORS_LINE = re.compile(r"\A# yaml-language-server:.*\n")


@dataclass(frozen=True, slots=True)
class BundledConfig:
    """A ready configuration."""

    path: Path

    @property
    def name(self) -> str:
        """As in ``mlagents-style learn NAME``."""
        return self.path.stem

    @property
    def description(self) -> str:
        """The task in one sentence: the first of the file's comments."""
        sentence = _FIRST_SENTENCE.match(" ".join(self._comments()))
        return sentence.group().rstrip(".:") if sentence else ""

    @property
    def env(self) -> str:
        """The value of ``--env`` that it is made for; empty where its comments name none."""
        command = _COMMAND.search("\n".join(self._comments()))
        return command["env"] if command else ""

    def text_for(self, target: Path) -> str:
        """Its text for a copy: its command names the copy, and no schema is expected beside it."""
        text = _EDITORS_LINE.sub("", self.path.read_text(encoding="utf-8"))
        return text.replace(f"configs/{self.path.name}", shlex.quote(target.as_posix()))

    def _comments(self) -> list[str]:
        """Returns the comments at its top, without the line for editors."""
        lines = _EDITORS_LINE.sub("", self.path.read_text(encoding="utf-8")).splitlines()
        end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
        return [line.removeprefix("#").strip() for line in lines[:end]]


@cache
def bundled_configs() -> Mapping[str, BundledConfig]:
    """All ready configurations by name, in alphabetical order; none where the package came without them."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
    return {path.stem: BundledConfig(path) for path in sorted(folder.glob("*.yaml"))}


def is_bundled_name(path: Path) -> bool:
    """Whether ``path`` is the name of a ready configuration, rather than a file's: no folder, no ending."""
    return path.name == str(path) and path.name in bundled_configs()
