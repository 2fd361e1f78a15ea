from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unity_bridge.errors import RemoteError
from unity_bridge.remote.private_files import FOLDER_VARIABLE, user_folder, write_private


def test_the_folder_of_a_user() -> None:
    assert user_folder({FOLDER_VARIABLE: "/srv/keys"}) == Path("/srv/keys")
    if sys.platform == "win32":
        assert user_folder({"APPDATA": "C:/Roaming"}) == Path("C:/Roaming/trainer-service")
    else:
        assert user_folder({"XDG_CONFIG_HOME": "/home/me/conf"}) == Path("/home/me/conf/trainer-service")
        assert user_folder({}) == Path.home() / ".config" / "trainer-service"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteError, match=rf"cannot write it: .*; {FOLDER_VARIABLE} names another folder"):
        write_private(tmp_path / "file" / "tokens", b"", replace=True)


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for content, replace, expected in ((b"a", False, b"a"), (b"b", False, b"a"), (b"c", True, b"c")):
        write_private(path, content, replace=replace)
        assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]
