"""Checks and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    verdict: Verdict
    """The verdict. ``warn``: it works, and is probably not meant. ``fail``: something has to be mended."""

    subject: str
    """The thing that was checked."""

    found: str

    remedy: str = ""
    """The solution; empty where all is well."""

    def __str__(self) -> str:
        """The finding as a line: ``ok    Python: 3.11.7``"""
        return f"{self.verdict:4}  {self.subject}: {self.found}" + (f"; {self.remedy}" if self.remedy else "")

    def to_json(self) -> dict[str, str]:
        """The finding as a mapping."""
        return {
            "check": self.subject,
            "verdict": self.verdict,
            "found": self.found,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Check:
    """A thing to check."""

    subject: str
    run: Callable[[], Finding | Iterable[Finding]]

    def findings(self) -> Iterator[Finding]:
        """Runs the check. One that fails for an unexpected reason is a finding, too."""
        try:
            found = self.run()
            yield from (found,) if isinstance(found, Finding) else found
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            remedy = "reinstall trainer-service in a fresh environment"
            yield Finding("fail", self.subject, f"{type(error).__name__}: {reason[:300]}", remedy)
