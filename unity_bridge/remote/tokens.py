"""The tokens that a port accepts, in a file that is read again whenever it changes."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import MINYEAR, UTC, datetime, timedelta
from pathlib import Path

from unity_bridge.errors import RemoteError
from unity_bridge.remote.join_code import LEAST_TOKEN, MOST_TOKEN, is_token
from unity_bridge.remote.private_files import LIFETIME, RENEWAL, read_private, version_of, write_private
from unity_bridge.untrusted_text import quoted

LOGGER = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=2)
"""How long a file that is absent, empty or unreadable may be one that is just being written."""

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
        self._missing_since: datetime | None = None
        """When the file was written without tokens, while the last ones still count."""
        self._load(makes=True)

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
        """Reads the file again if it changed.

        A program that writes it may empty or remove it for a moment. So the last tokens count until it has stood there
        without any for ``PATIENCE``; an absent one is then made again.
        """
        version, now = version_of(self.path), self._clock()
        has_changed = version != self._version
        is_patient = has_changed or self._missing_since is None or now < self._missing_since + PATIENCE
        due = self._renews_at is not None and now >= self._renews_at
        if is_patient and not has_changed and not due:
            return
        try:
            self._load(makes=not is_patient)
        except (RemoteError, FileNotFoundError) as error:
            self._version, self._renews_at = version, None
            if is_patient:
                self._missing_since = now
                return
            self._tokens = ()
            LOGGER.warning("No token is accepted from now on: %s", error)
        self._missing_since = None

    def _load(self, *, makes: bool) -> None:
        """Reads the file; writes it with a new token if it has none that holds long enough.

        makes: whether an absent file is made. If not, it raises FileNotFoundError.
        """
        now = self._clock()
        version = version_of(self.path)
        try:
            tokens = parse_tokens(read_private(self.path).decode(errors="replace"), str(self.path))
        except FileNotFoundError:
            if not makes:
                raise
            tokens = ()
        due = _renewal(tokens)
        if due is not None and now >= due:
            new = Token(secrets.token_urlsafe(16), (now + LIFETIME).replace(microsecond=0))
            valid = tuple(token for token in tokens if token.holds(now))
            try:
                write_private(self.path, (_HEADER + _text((new, *valid))).encode(), replace=True)
                tokens = (new, *valid)
                version, due = version_of(self.path), _renewal(tokens)
            except RemoteError as error:
                if not valid:
                    raise
                due = now + timedelta(days=1)
                LOGGER.warning("The tokens are not renewed, which is tried again in a day: %s", error)
        self._version, self._tokens, self._renews_at = version, tokens, due


def parse_tokens(text: str, source: str) -> tuple[Token, ...]:
    """Reads tokens, one a line, with their ends where they have one. Raises RemoteError."""
    tokens = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        where = f"'{source}', line {number}"
        if len(words) > 2 or not is_token(words[0]):
            raise RemoteError(
                f"{where}: expected a token of {LEAST_TOKEN} to {MOST_TOKEN} ASCII characters, all of them visible, "
                f"and perhaps its end, got {len(words)} words, the first of {len(words[0])} characters"
            )
        tokens.append(Token(words[0], _end(words[1], where) if words[1:] else None))
    if not tokens:
        raise RemoteError(f"'{source}': expected a token, got none (delete the file for a new one)")
    return tuple(tokens)


def _end(word: str, where: str) -> datetime:
    try:
        end = datetime.fromisoformat(word)
        if end.year == MINYEAR:  # the time of its renewal would lie before all years
            raise ValueError
    except ValueError:
        raise RemoteError(f"{where}: expected an end such as 2030-01-31, got {quoted(word)}") from None
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
