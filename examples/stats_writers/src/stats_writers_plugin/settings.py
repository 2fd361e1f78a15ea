"""The module ``mlagents.trainers.settings`` for ML-Agents' plugins: the options of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainer_service import config
from trainer_service.config import dump_run_options


class RunOptions:
    """The options of a run as plugins read them: attributes with ML-Agents' names, down to the last value."""

    def __init__(self, options: config.RunOptions) -> None:
        self._plain: dict[str, Any] = yaml.safe_load(dump_run_options(options))
        self._options = options
        self.checkpoint_settings = CheckpointSettings(options.checkpoint_settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)

    def as_dict(self) -> Mapping[str, Any]:
        """All options as numbers, texts, lists and mappings."""
        return self._plain


class CheckpointSettings:
    """The name of the run and its folders."""

    def __init__(self, settings: config.CheckpointSettings) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settings, name)

    @property
    def write_path(self) -> str:
        """The folder of the run."""
        return str(Path(self._settings.results_dir, self._settings.run_id))

    @property
    def maybe_init_path(self) -> str | None:
        """The folder of the run whose weights it starts with; None without one."""
        source = self._settings.initialize_from
        return None if source is None else str(Path(self._settings.results_dir, source))

    @property
    def run_logs_dir(self) -> str:
        """The folder of the run's results."""
        return str(Path(self.write_path, "run_logs"))
