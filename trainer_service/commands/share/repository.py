"""Repositories of the Hugging Face Hub: uploads of a folder, downloads of named files. The only user of its library."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_service.errors import UserError
from unity_bridge.extras import install_hint
from unity_bridge.names import folder_name_problem
from unity_bridge.untrusted_text import first_line, quoted

_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_MAX_BYTES = 2**33
"""Limit of the bytes of a download."""


@dataclass(frozen=True, slots=True)
class RepositorySnapshot:
    """A repository at one commit."""

    repo_id: str
    commit: str
    sizes: Mapping[str, int]
    """Bytes of each file, by its name in the repository; all names lead to places inside."""


def require_repo_id(repo_id: str) -> str:
    """Returns the name of a repository. Raises UserError where it is not USER/NAME."""
    if not _REPO_ID.fullmatch(repo_id):
        raise UserError(f"repository {quoted(repo_id)}: expected USER/NAME, such as ada/walker")
    return repo_id


def create_repository(repo_id: str, *, private: bool) -> str:
    """Makes a repository unless it exists. Returns its address.

    private: makes a new repository private; without it, the account's or organization's default holds (public, as a
    rule).

    Raises:
        UserError: huggingface_hub is not installed, there is no login, or the Hub refuses.
    """
    with _hub(repo_id) as api:
        return str(api.create_repo(repo_id, exist_ok=True, private=private or None))


def upload(folder: Path, repo_id: str, message: str) -> None:
    """Uploads all files of a folder as one commit. Raises UserError where the Hub refuses."""
    with _hub(repo_id) as api:
        api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)


def find_snapshot(repo_id: str, revision: str | None = None) -> RepositorySnapshot:
    """Looks a repository up.

    Args:
        repo_id: its name.
        revision: a branch, tag or commit; None for the newest.

    Raises:
        UserError: huggingface_hub is not installed, there is no such repository, or a file's name leads out of it.
    """
    with _hub(repo_id) as api:
        info = api.model_info(repo_id, revision=revision, files_metadata=True)
    sizes = {str(file.rfilename): int(file.size or 0) for file in info.siblings or ()}
    for name in sizes:
        _require_inside(name, repo_id)
    return RepositorySnapshot(repo_id, str(info.sha), sizes)


def download(snapshot: RepositorySnapshot, names: Iterable[str], target: Path) -> None:
    """Downloads some files of a repository into a folder that is empty.

    Raises:
        UserError: they are too large, a download fails, or the result is no regular file.
    """
    names = list(names)
    if (size := sum(snapshot.sizes[name] for name in names)) > _MAX_BYTES:
        raise UserError(
            f"repository '{snapshot.repo_id}': its files have {size} bytes; expected at most {_MAX_BYTES}"
        )
    with _hub(snapshot.repo_id) as api:
        for name in names:
            api.hf_hub_download(snapshot.repo_id, name, revision=snapshot.commit, local_dir=target)
    for name in names:
        path = target / name
        if path.is_symlink() or not path.is_file() or path.resolve() != target.resolve() / name:
            raise UserError(f"repository '{snapshot.repo_id}': {quoted(name)} is no regular file")


def _require_inside(name: str, repo_id: str) -> None:
    if "\\" in name or ":" in name or any(folder_name_problem(part) for part in name.split("/")):
        raise UserError(
            f"repository '{repo_id}': the file name {quoted(name)} could lead out of its folder; nothing was downloaded"
        )


@contextmanager
def _hub(repo_id: str) -> Iterator[Any]:
    """A context with the library's API, in which its errors become UserErrors that name the repository."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError(f"the package huggingface_hub is not installed: {install_hint('hub')}")
    import huggingface_hub
    from huggingface_hub import errors

    api = huggingface_hub.HfApi(library_name="trainer-service")
    try:
        yield api
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"repository '{repo_id}': not found; check its name, and if it is private log in with: hf auth login"
        ) from None
    except errors.LocalTokenNotFoundError:
        raise UserError(f"repository '{repo_id}': log in first, with: hf auth login") from None
    except UserError:
        raise
    except Exception as error:  # the library passes on whatever its HTTP client raises
        status = getattr(getattr(error, "response", None), "status_code", None)
        hint = "; log in with: hf auth login" if status in (401, 403) else ""
        raise UserError(f"repository '{repo_id}' at {api.endpoint}: {first_line(error)}{hint}") from None
