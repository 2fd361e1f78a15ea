from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_bridge.names import LONGEST_NAME, name_problem, same_folder, shortened


@pytest.mark.parametrize(
    "name",
    [
        "3DBall", "My Behavior", "CartPole-v1", "行為", "Läufer 3", "a.b", "x" * LONGEST_NAME, "[red] #1 + you@home",
        "$(id)", "`id`", "a'b", "a;b", "agent_0", "me", "film", "run_logs2", "model.onnx.old", "می\u200cروم",
    ],
)  # fmt: skip
def test_ordinary_behavior_names_are_fine(name: str) -> None:
    assert name_problem(name, windows=False) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "must not be empty"),
        ("..", "must not be a folder's own name"),
        ("a/b", "must not contain slashes"),
        ("..\\b", "must not contain slashes"),
        ("Ball?team=0", "one entry serves every team, so write 'Ball'"),
        ("a\x00b", "got the control character U+0000"),
        ("a\u202eb", "got the formatting character U+202E"),
        ("a\u2028b", "got the separating character U+2028"),
        ("ru\udcffn", "got the surrogate character U+DCFF"),
        ("x" * 201, "must be at most 200 bytes long, got 201"),
        ("ü" * 101, "must be at most 200 bytes long, got 202"),
        ("-rf", "must not start with '-'"),
        (".lock", "must not start with a dot"),
        ("aux", "device name"),
    ],
)
def test_names_that_cannot_be_made_safe_are_refused(name: str, reason: str) -> None:
    assert reason in str(name_problem(name))


@pytest.mark.parametrize("name", ["a:b", "a*", "run."])
def test_names_forbidden_on_windows_are_refused_only_there(name: str) -> None:
    assert name_problem(name, windows=False) is None
    assert name_problem(name, windows=True) is not None


@settings(max_examples=40)
@given(st.text("aZ0 .行é🎱", max_size=250), st.integers(16, LONGEST_NAME))
def test_a_shortened_name_fits_and_a_short_one_stays(name: str, limit: int) -> None:
    short = shortened(name, limit)
    fits = len(name.encode()) <= limit
    assert len(short.encode()) <= limit
    assert (short == name) == fits


def test_long_names_that_differ_at_their_ends_stay_different() -> None:
    names = [f"{'agent' * 60}_{number}" for number in range(100)]
    short = [shortened(name) for name in names]
    assert not any(same_folder(name, short) for name in short)
    assert len({*short}) == 100
    assert all(name.startswith("agentagent") and name_problem(name) is None for name in short)


def test_a_shortened_name_is_known_beforehand() -> None:
    # Worked by hand with sha256sum, so that no process and no version may name the same agent otherwise.
    assert shortened("a" * 300) == "a" * 187 + "~9835fa6bf4e2"


@pytest.mark.parametrize(
    ("one", "other"), [("Ball", "bALL"), ("L\u00e4ufer", "La\u0308UFER"), ("Straße", "STRASSE")]
)
def test_names_that_share_a_folder_somewhere_are_found(one: str, other: str) -> None:
    assert same_folder(one, ["Bal", one, other, "Ball2"]) == other
    assert same_folder(one, ["Bal", one, "Ball2"]) is None
