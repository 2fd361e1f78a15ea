"""The addresses under which other machines may reach a port of this one."""

from __future__ import annotations

import ipaddress
import socket

from unity_bridge.transport.ports import address_of

MOST_ADDRESSES = 4

_OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses that no machine has: the way to them is the way out of this one. Nothing is sent."""


def reachable_addresses(host: str, port: int) -> tuple[str, ...]:
    """Returns ``HOST:PORT`` for a host to listen on: several if it stands for all interfaces, the likeliest first."""
    try:
        is_any = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    if not is_any:
        return (address_of(host, port),)
    found = [*_outgoing(), *_of_interfaces()]
    kept = [each for each in dict.fromkeys(found) if ":" not in each or ":" in host]
    return tuple(address_of(each, port) for each in kept[:MOST_ADDRESSES]) or (f"127.0.0.1:{port}",)


def _outgoing() -> list[str]:
    """Returns the addresses that this machine uses to reach others."""
    found = []
    for family, outside in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                found.append(str(probe.getsockname()[0]))
        except OSError:
            continue
    return found


def _of_interfaces() -> list[str]:
    """Returns the IPv4 addresses of all interfaces that others may reach."""
    try:
        import psutil
    except ImportError:  # a broken installation, of which the doctor tells
        return []
    addresses = [
        each.address
        for interface in psutil.net_if_addrs().values()
        for each in interface
        if each.family == socket.AF_INET
    ]
    parsed = [ipaddress.ip_address(each) for each in addresses]
    return [str(each) for each in parsed if not (each.is_loopback or each.is_link_local)]
