"""Checks of the way to a trainer on another machine, by its join code. Nothing of its run is touched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

from trainer_service.commands.doctor.report import Finding
from unity_bridge.errors import RemoteError
from unity_bridge.remote.dialing import CertificateMismatch, PinnedAddress, find_trainer
from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode
from unity_bridge.remote.ping import Pinger, PingRefused

_PINGS = 50
_LONGEST_S = 10.0
"""How long pings are sent; a trainer that learns answers none meanwhile."""

_LITTLE_TIME_DAYS = 14
_MOST_CLOCK_S = 60.0
_SLOW_S = 0.005
"""The round trip from which a simulator of 5 ms a step spends most of its time on the way."""


def join(text: str, address: str | None = None) -> Iterator[Finding]:
    """Checks code, way, certificate, token, clock and round trip, as far as each is possible.

    Args:
        text: the join code; empty for that of the environment variable.
        address: ``HOST:PORT`` in place of the code's addresses.
    """
    try:
        code = JoinCode.given(text)
    except RemoteError as error:
        yield Finding("fail", "join code", str(error), f"copy it again, or set {JOIN_VARIABLE}")
        return
    yield Finding("ok", "join code", f"a token and a fingerprint for {', '.join(code.addresses)}")
    try:
        found = find_trainer(code, address)
    except CertificateMismatch as error:
        yield Finding("fail", "certificate", str(error), "use the code that the trainer prints now")
        return
    except RemoteError as error:
        remedy = "is the trainer running, the port open in its firewall, and the address (--address) right from here?"
        yield Finding("fail", "way to the trainer", str(error), remedy)
        return
    yield Finding("ok", "way to the trainer", f"{found.address} answers with TLS")
    yield certificate(found, datetime.now(UTC))
    with Pinger(found, code.token) as pinger:
        try:
            pings = _pings(pinger)
        except PingRefused as error:
            yield Finding("fail", "token", str(error), "use the code that the trainer prints now")
            return
        except RemoteError as error:
            yield Finding("warn", "token", str(error), "a trainer that learns answers later: try again")
            return
    yield Finding("ok", "token", "accepted")
    yield clock(min(pings)[1])
    yield round_trip(median(seconds for seconds, _ in pings))


def _pings(pinger: Pinger) -> list[tuple[float, float]]:
    """Returns round trips and clock differences of all calls but the first, which opens the connection."""
    pinger.ping(timeout_s=_LONGEST_S)
    until, pings = time.monotonic() + _LONGEST_S, [pinger.ping(timeout_s=_LONGEST_S)]
    while len(pings) < _PINGS and (left := until - time.monotonic()) > 0:
        try:
            pings.append(pinger.ping(timeout_s=left))
        except PingRefused:
            raise
        except RemoteError:
            break  # it learns
    return pings


def certificate(found: PinnedAddress, now: datetime) -> Finding:
    """Checks how long the certificate is valid."""
    days = (found.certificate.ends - now).days
    text = f"that of the join code, valid until {found.certificate.ends:%Y-%m-%d}"
    if days < _LITTLE_TIME_DAYS:
        return Finding(
            "warn",
            "certificate",
            f"{text}, {days} days from now",
            "renew it; `learn` renews a certificate that it made itself",
        )
    return Finding("ok", "certificate", text)


def clock(difference_s: float) -> Finding:
    """Checks how far the trainer's clock is from this one's: certificates and tokens have dates."""
    text = f"{abs(difference_s):.1f} s {'behind' if difference_s > 0 else 'ahead of'} the trainer's"
    if abs(difference_s) > _MOST_CLOCK_S:
        return Finding("warn", "clock", text, "set it by the network: tokens and certificates have dates")
    return Finding("ok", "clock", text)


def round_trip(seconds: float) -> Finding:
    """Says how many exchanges a simulator can make."""
    most = 1 / seconds
    text = f"{seconds * 1e3:.2f} ms: each simulator makes at most {most:.0f} exchanges per second, its own work aside"
    if seconds > _SLOW_S:
        remedy = "more simulators at once make up for it; rollout workers (--num-workers) act beside them"
        return Finding("warn", "round trip", text, remedy)
    return Finding("ok", "round trip", text)
