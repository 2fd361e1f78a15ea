"""Modules that lie in no package: tools, and hooks of the build."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def module_of(path: Path) -> Any:
    """The module of a file, run anew."""
    spec = importlib.util.spec_from_file_location(f"file_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
