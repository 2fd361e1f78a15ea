"""Names of behaviors, sensors and agents: their longest length, and the names that a behavior may have.

A run has a folder for each behavior, and an exported model beside it. So a behavior name must be a valid file name on
every system, and must not be the name of anything else that a run writes.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable

LONGEST_NAME = 200
"""Longest name in bytes of UTF-8. File systems stop at 255, and suffixes such as ``-500000.onnx`` need room."""

_HASH_DIGITS = 12

_DEVICES = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
_FORBIDDEN_ON_WINDOWS = '<>:"|?*'

_RESERVED = re.compile(
    r"""
    run_logs | bundle | (configuration|suggested)\.yaml | (metrics|evaluations)\.jsonl | report\.html | film-.*\.gif
    | wandb                     # where its tracker writes
    | set-aside.*               # folders of files that a resumed run does not continue with
    | .*\.(onnx|safetensors|pt|tmp)  # models, checkpoints, files that are being written
    | .*tfevents.*              # TensorBoard reads every such file in a behavior's folder
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Names of files and folders that a run writes for itself, in any case: some file systems ignore it."""

_INVISIBLE = {"Cc": "control", "Cs": "surrogate", "Cf": "formatting", "Zl": "separating", "Zp": "separating"}
"""Unicode categories of characters that change how a terminal shows a line, or that it cannot show."""
_JOINERS = "\u200c\u200d"
"""Formatting characters that the spelling of Persian, Hindi and other languages needs."""


def name_problem(name: str, *, windows: bool = sys.platform == "win32") -> str | None:
    """Describes why a behavior name is refused, as the end of a sentence; None for a valid one."""
    if "/" in name or "\\" in name:
        return "must not contain slashes, because a folder is named after it"
    if "?" in name:
        return f"must not contain '?'; one entry serves every team, so write '{name.split('?')[0]}'"
    if problem := folder_name_problem(name, windows=windows):
        return problem
    if name.startswith("."):
        return "must not start with a dot, as hidden files of a run do"
    if _RESERVED.fullmatch(name):
        return "must not be the name of a file or folder that a run writes for itself"
    return None


def folder_name_problem(name: str, *, windows: bool = sys.platform == "win32") -> str | None:
    """Describes why no folder may have this name, as the end of a sentence; None for a valid one."""
    if not name.strip():
        return "must not be empty"
    # Before the checks of every character, because the name may come over the network.
    if problem := length_problem(name):
        return problem
    if name in {".", ".."}:
        return "must not be a folder's own name or its parent's"
    if name != name.strip():
        return "must not start or end with a space"
    if name.startswith("-"):
        return "must not start with '-', which would make it look like a flag"
    for character in name:
        kind = _INVISIBLE.get(unicodedata.category(character))
        if kind is not None and character not in _JOINERS:
            return f"must not contain control characters, got the {kind} character U+{ord(character):04X}"
    if name.split(".")[0].strip().lower() in _DEVICES:
        return "must not be a device name of Windows"
    if windows and (name.endswith(".") or any(character in _FORBIDDEN_ON_WINDOWS for character in name)):
        return f"must not end with '.' or contain any of {_FORBIDDEN_ON_WINDOWS} on Windows"
    return None


def length_problem(name: str) -> str | None:
    """Describes why a name is too long, of a behavior, sensor or agent, as the end of a sentence; None if it fits."""
    length = len(_utf8(name))
    return None if length <= LONGEST_NAME else f"must be at most {LONGEST_NAME} bytes long, got {length}"


def same_folder(name: str, others: Iterable[str]) -> str | None:
    """The one of the other names that shares a folder with ``name`` on some file system; None without one.

    macOS and Windows ignore case, and macOS how a letter with an accent is composed.
    """
    return next(
        (other for other in others if other != name and _folder_key(other) == _folder_key(name)), None
    )


def _folder_key(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def shortened(name: str, limit: int = LONGEST_NAME) -> str:
    """A name of at most ``limit`` bytes of UTF-8: the name itself where it fits, else its beginning and a hash.

    The hash is of the whole name, so long names that differ stay different. It is the same in every process.
    For names that a program makes up, from the name of an agent or a sensor; limit: at least 16.
    """
    encoded = _utf8(name)
    if len(encoded) <= limit:
        return name
    mark = "~" + hashlib.sha256(encoded).hexdigest()[:_HASH_DIGITS]
    beginning = encoded[: limit - len(mark)].decode(errors="ignore")
    return beginning.rstrip() + mark


def _utf8(name: str) -> bytes:
    return name.encode(errors="surrogatepass")


def nearest_choice(word: str, choices: Iterable[str], *, similarity: float = 0.6) -> str | None:
    """The choice that is most similar to ``word``, in any case; None if none is at least so similar, from 0 to 1."""
    by_letters = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word.lower(), by_letters, n=1, cutoff=similarity)
    return by_letters[near[0]] if near else None


def did_you_mean(word: object, choices: Iterable[str], words: str = "did you mean '{}'?") -> str:
    """A hint at the nearest choice, as the end of a message; empty if none is near."""
    near = nearest_choice(word, choices) if isinstance(word, str) else None
    return f" ({words.format(near)})" if near else ""
