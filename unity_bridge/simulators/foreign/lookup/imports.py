"""Imports of modules that users name, and error messages for failed imports."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from unity_bridge.simulators.scene import SceneError


def import_module(called: str, module: str, explain: Callable[[str], str] = lambda missing: "") -> Any:
    """The module of that name, from the current folder too.

    Args:
        called: as the user wrote the environment that wants it, for messages.
        module: as Python imports it.
        explain: takes the name of a module that is missing; returns what to do, or an empty text.

    Raises:
        SceneError: it cannot be imported.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as ``python -m`` has it, and a console script has not
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        text = explain(missing) or (
            f"there is no module {module}"
            if f"{module}.".startswith(f"{missing}.")
            else f"{module} needs {missing}, which is not installed"
        )
        raise SceneError(f"{called}: {text}") from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"{called}: importing {module} raised {type(error).__name__}: {text}") from error


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function or class by name; none if the signature is unknown, as for functions in C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
