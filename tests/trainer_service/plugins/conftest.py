from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from trainer_service.config import HYPERPARAMETERS, REWARD_SIGNALS
from trainer_service.config.run.tracking import SUMMARY_WRITERS
from trainer_service.learning.algorithms import ALGORITHMS
from trainer_service.learning.networks.encoders.pictures import PICTURE_ENCODERS
from trainer_service.learning.rewards import REWARD_SOURCES

REGISTRIES: tuple[MutableMapping[str, Any], ...] = (
    HYPERPARAMETERS,
    REWARD_SIGNALS,
    ALGORITHMS,
    REWARD_SOURCES,
    PICTURE_ENCODERS,
    SUMMARY_WRITERS,
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the search path, of child processes too. What was loaded from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    modules, before = set(sys.modules), [dict(registry) for registry in REGISTRIES]
    yield folder
    for name in set(sys.modules) - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    for registry, content in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(content)
    importlib.invalidate_caches()
