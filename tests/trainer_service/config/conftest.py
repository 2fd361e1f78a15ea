from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer_service.config import LoadedOptions, load_run_options
from trainer_service.errors import ConfigError

Load = Callable[..., LoadedOptions]
Refuse = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a text (or bytes) like a file, together with overrides of the command line."""

    def load_text(text: str | bytes, overrides: Mapping[str, Any] | None = None) -> LoadedOptions:
        path = tmp_path / "run.yaml"
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return load_run_options(path, overrides or {})

    return load_text


@pytest.fixture
def refuse(load: Load, tmp_path: Path) -> Refuse:
    """Loads a text that must be refused and returns the lines of the message, without the folder."""

    def lines(text: str | bytes, overrides: Mapping[str, Any] | None = None) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, overrides)
        return str(caught.value).replace(f"{tmp_path / 'run.yaml'}", "run.yaml").splitlines()

    return lines
