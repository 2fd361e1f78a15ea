from __future__ import annotations

import pytest

from trainer_service.learning import kernels


@pytest.mark.parametrize(
    ("said", "allowed"),
    [(None, True), ("", True), ("0", True), ("false", True), ("1", False), ("True", False), (" yes ", False)],
)
def test_fast_paths_are_off_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, said: str | None, allowed: bool
) -> None:
    monkeypatch.delenv(kernels.SLOW, raising=False)
    if said is not None:
        monkeypatch.setenv(kernels.SLOW, said)
    assert kernels.fast_paths_allowed() is allowed
