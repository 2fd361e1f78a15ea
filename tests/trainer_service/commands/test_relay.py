"""``mlagents-style relay``: which trainer is meant, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode

CODE = JoinCode(("192.0.2.1:5005",), "t" * 24, b"\x01" * 32).text()


@pytest.fixture(autouse=True)
def no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOIN_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--join: expected a code, or one in the environment variable TRAINER_SERVICE_JOIN; got neither"),
        (
            ["--address=192.0.2.1:5004"],
            "--address 192.0.2.1:5004: expected --join beside an address of another",
        ),
        (["--address=localhost"], "address: expected HOST:PORT, got 'localhost'"),
        (["--join=SWMTKN-1"], "join code: expected TS1-… as the trainer prints it, got 'SWMTKN-1'"),
        ([f"--join={CODE}", "--env=sim:none"], "sim:none: no such scene"),
        ([f"--join={CODE}", "--env=no/such/build"], "env 'no/such/build': no such program"),
        ([f"--join={CODE}", "--num-envs=0"], "env_settings.num_envs"),
    ],
)
def test_a_mistake_is_named(mlagents_style: Any, words: list[str], message: str) -> None:
    said = mlagents_style("relay", *words)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err


def test_the_code_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer_service.commands.relay import _trainer

    monkeypatch.setenv(JOIN_VARIABLE, CODE)
    assert _trainer(None, None)[0] == "192.0.2.1:5005"
    assert _trainer("", "198.51.100.7:5005")[0] == "198.51.100.7:5005"
