"""The folder of this user in which keys and tokens are kept, and files in it that no other user may read."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from unity_bridge.errors import RemoteError

LOGGER = logging.getLogger(__name__)

LIFETIME, RENEWAL = timedelta(days=365), timedelta(days=60)
"""How long a certificate or token that is made holds, and how long before its end the next one is made."""

FOLDER_VARIABLE = "TRAINER_SERVICE_CONFIG"
"""The environment variable that names another folder."""


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns where keys and tokens of this user are kept. It may not exist yet."""
    if given := environment.get(FOLDER_VARIABLE):
        return Path(given)
    if sys.platform == "win32":
        return Path(environment.get("APPDATA") or Path.home() / "AppData" / "Roaming", "trainer-service")
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config", "trainer-service")


def read_private(path: Path) -> bytes:
    """Returns the content of a file. Warns if others may read it.

    Raises:
        RemoteError: it cannot be read.
        FileNotFoundError: there is none.
    """
    try:
        content = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RemoteError(f"'{path}': cannot read it: {error.strerror or error}") from error
    if os.name == "posix" and mode & 0o077:
        LOGGER.warning("'%s' can be read by other users (mode %04o): chmod 600 keeps it yours.", path, mode)
    return content


def write_private(path: Path, content: bytes, *, replace: bool) -> None:
    """Writes a file that only this user may read, in one step; makes its folder.

    replace: whether it takes the place of one that is there. If not, the one that is there stays.

    Raises:
        RemoteError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(temporary, path)
            else:
                with contextlib.suppress(FileExistsError):  # another trainer was faster
                    os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise RemoteError(
            f"'{path}': cannot write it: {error.strerror or error}; {FOLDER_VARIABLE} names another folder"
        ) from error


def version_of(path: Path) -> tuple[int, int, int]:
    """Returns a value that changes when a file is replaced or written; zeros if there is none."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
