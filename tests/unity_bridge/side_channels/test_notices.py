from __future__ import annotations

import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import NOTICES, Notice, notice_record, parse_notice


def test_a_notice_comes_back_as_it_was() -> None:
    record = notice_record(Notice("pace:3", "12 ms\nfür each"))
    assert record.channel == NOTICES
    assert parse_notice(record.body) == Notice("pace:3", "12 ms\nfür each")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"\xff\n", "expected a text in UTF-8, got 2 other bytes"),
        (b"word", "got one line"),
        (b"\nword", "a topic"),
    ],
)
def test_what_is_no_notice_is_refused(body: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        parse_notice(body)
