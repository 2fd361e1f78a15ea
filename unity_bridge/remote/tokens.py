"""The tokens that a port accepts, in a file that is read again whenever it changes."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from unity_bridge.errors import RemoteError
from unity_bridge.remote.join_code import LEAST_TOKEN, MOST_TOKEN
from unity_bridge.remote.private_files import read_private, version_of, write_private

LOGGER = logging.getLogger(__name__)

LIFETIME = timedelta(days=365)
"""How long a token that is made holds."""

RENEWAL = timedelta(days=60)
"""How long before its end the next one is made; until then both hold."""

_HEADER = """\
# Tokens that the trainer accepts, one a line: TOKEN [END]. The first one goes into the join code.
# Remove a line to revoke its token; delete the file for a new token. A running trainer reads the file again.
"""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its end; None for one without."""

    text: str
    ends: datetime | None

    def holds(self, now: datetime) -> bool:
        """Whether it has not ended."""
        return self.ends is None or now < self.ends

    def __repr__(self) -> str:
        return f"token until {self.ends}"


class TokenFile:
    """A file of tokens. Made with a new token if there is none; one about to end is followed by another in time."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Reads the file, or makes it.

        Raises:
            RemoteError: it cannot be read or made, or holds no valid token.
        """
        self.path = path
        self._clock = clock
        self._version = (0, 0, 0)
        self._tokens: tuple[Token, ...] = ()
        self._renews_at: datetime | None = None
        self._load()

    @property
    def newest(self) -> Token | None:
        """The first token that holds; None if there is none."""
        now = self._clock()
        return next((token for token in self._tokens if token.holds(now)), None)

    def accepts(self, given: bytes) -> bool:
        """Whether the file holds a token at this moment. Takes as long for every text of one length."""
        self.refresh()
        now, found = self._clock(), False
        for token in self._tokens:
            is_this = hmac.compare_digest(token.text.encode(), given)
            found |= is_this and token.holds(now)
        return found

    def refresh(self) -> None:
        """Reads the file again if it changed. What cannot be read holds no tokens, and is logged."""
        due = self._renews_at is not None and self._clock() >= self._renews_at
        if not due and version_of(self.path) == self._version:
            return
        try:
            self._load()
        except RemoteError as error:
            self._tokens, self._renews_at, self._version = (), None, version_of(self.path)
            LOGGER.warning("No token is accepted from now on: %s", error)

    def _load(self) -> None:
        """Reads the file; writes it with a new token if it has none that holds long enough."""
        now = self._clock()
        version = version_of(self.path)
        try:
            tokens = parse_tokens(read_private(self.path).decode(errors="replace"), str(self.path))
        except FileNotFoundError:
            tokens = ()
        due = _renewal(tokens)
        if due is not None and now >= due:
            new = Token(secrets.token_urlsafe(16), (now + LIFETIME).replace(microsecond=0))
            tokens = (new, *(token for token in tokens if token.holds(now)))
            write_private(self.path, (_HEADER + _text(tokens)).encode(), replace=True)
            version, due = version_of(self.path), _renewal(tokens)
        self._version, self._tokens, self._renews_at = version, tokens, due


def parse_tokens(text: str, source: str) -> tuple[Token, ...]:
    """Reads tokens, one a line, with their ends where they have one. Raises RemoteError."""
    tokens = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        where = f"'{source}', line {number}"
        if len(words) > 2 or not LEAST_TOKEN <= len(words[0]) <= MOST_TOKEN or not words[0].isascii():
            raise RemoteError(
                f"{where}: expected a token of {LEAST_TOKEN} to {MOST_TOKEN} ASCII characters and perhaps its end, got "
                f"{len(words)} words, the first of {len(words[0])} characters"
            )
        tokens.append(Token(words[0], _end(words[1], where) if words[1:] else None))
    if not tokens:
        raise RemoteError(f"'{source}': expected a token, got none (delete the file for a new one)")
    return tuple(tokens)


def _end(word: str, where: str) -> datetime:
    try:
        end = datetime.fromisoformat(word)
    except ValueError:
        raise RemoteError(f"{where}: expected an end such as 2030-01-31, got '{word[:40]}'") from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)


def _renewal(tokens: Iterable[Token]) -> datetime | None:
    """Returns when another token is due; None if one of them has no end."""
    ends = [token.ends for token in tokens]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    return max(known) - RENEWAL if known else datetime.min.replace(tzinfo=UTC)


def _text(tokens: Iterable[Token]) -> str:
    return "".join(
        f"{token.text}  {token.ends.isoformat()}\n" if token.ends else f"{token.text}\n" for token in tokens
    )
