"""Imports of modules that users name, and error messages for failed imports."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unity_bridge.names import did_you_mean
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


def import_file(called: str, path: str, name: str) -> Callable[..., Any]:
    """The class or function of a Python file; the file may import modules beside it.

    Args:
        called: as the user wrote the environment, for messages.
        path: of the file.
        name: of the class or function.

    Raises:
        SceneError: there is no such file or name, or the file cannot be run.
    """
    file = Path(path).absolute()
    if not file.is_file():
        raise SceneError(f"{called}: there is no file {file}")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(f"environments_of_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"{called}: running {file.name} raised {type(error).__name__}: {text}") from error
    found = getattr(module, name, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    classes = [key for key, each in vars(module).items() if getattr(each, "__module__", "") == spec.name]
    hint = did_you_mean(name, classes)
    raise SceneError(f"{called}: {file.name} has no class or function {name}{hint}")


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function or class by name; none if the signature is unknown, as for functions in C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
