"""Compiles the optional kernel into a wheel, where a C compiler is; without one the wheel is for every platform.

With ``TRAINER_SERVICE_COMPILE=1`` in the environment a wheel without the kernel is an error.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILD = "trainer_service/learning/kernels/compiled/build.py"


class CompiledKernelHook(BuildHookInterface[Any]):
    """Adds the shared library to the wheel; an editable installation gets it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: ``editable`` or ``standard``."""
        self._folder = tempfile.TemporaryDirectory()
        build = _build_module(Path(self.root, _BUILD))
        library = build.LIBRARY if version == "editable" else Path(self._folder.name, build.LIBRARY.name)
        try:
            build.build(library)
        except (build.BuildError, OSError) as error:
            if os.environ.get(build.WANTED) == "1":
                raise RuntimeError(f"{build.WANTED}=1 asks for the compiled kernel: {error}") from None
            what = "installation" if version == "editable" else "wheel, which is for every platform,"
            self.app.display_warning(
                f"NO COMPILED KERNEL is in this {what} because: {error}. All works without it; updates take longer. "
                f"With {build.WANTED}=1 in the environment this is an error."
            )
            return
        if version != "editable":
            build_data["force_include"][str(library)] = str(Path(_BUILD).with_name(library.name))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform(build)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was compiled for the wheel."""
        self._folder.cleanup()


def _build_module(path: Path) -> ModuleType:
    """The module alone: the package around it imports what is not installed yet."""
    spec = importlib.util.spec_from_file_location("build_of_the_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _platform(build: ModuleType) -> str:
    """The platform that a wheel with this library is for, as wheels name it."""
    name = sysconfig.get_platform()
    if name.startswith("macosx"):
        name = f"macosx-{build.OLDEST_MACOS}-{build.processor()}"
    return name.replace("-", "_").replace(".", "_")
