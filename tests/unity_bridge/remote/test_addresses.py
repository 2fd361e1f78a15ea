from __future__ import annotations

import ipaddress

import pytest

from unity_bridge.remote.addresses import MOST_ADDRESSES, reachable_addresses
from unity_bridge.remote.join_code import split_address


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_all_interfaces_stand_for_addresses_that_can_be_dialled(host: str) -> None:
    found = reachable_addresses(host, 5005)
    assert 1 <= len(found) <= MOST_ADDRESSES
    assert len(set(found)) == len(found)
    for address in found:
        number, port = split_address(address)
        assert port == 5005
        assert not ipaddress.ip_address(number).is_unspecified
        assert host == "::" or ":" not in number, "nothing listens on IPv6"


def test_a_machine_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_bridge.remote.addresses._outgoing", list)
    monkeypatch.setattr("unity_bridge.remote.addresses._of_interfaces", list)
    assert reachable_addresses("0.0.0.0", 5) == ("127.0.0.1:5",)
