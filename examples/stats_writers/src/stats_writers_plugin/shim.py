"""Modules under ML-Agents' names, for its plugins to import where ML-Agents itself is not."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

STATS_WRITER_GROUP = "mlagents.stats_writer"
_TRAINER_TYPE_GROUP = "mlagents.trainer_type"
_VERSION = "1.1.0"


def install() -> None:
    """Makes the names that plugins of writers import lead to ours, unless the real mlagents can be imported."""
    if importlib.util.find_spec("mlagents") is not None:
        return
    from stats_writers_plugin import settings, stats

    mlagents = _package("mlagents", __version__=_VERSION)
    trainers = _package("mlagents.trainers", stats=stats, settings=settings)
    plugins = _package(
        "mlagents.plugins",
        ML_AGENTS_STATS_WRITER=STATS_WRITER_GROUP,
        ML_AGENTS_TRAINER_TYPE=_TRAINER_TYPE_GROUP,
        all_trainer_types={},
        all_trainer_settings={},
    )
    mlagents.__dict__.update(trainers=trainers, plugins=plugins)
    modules = {each.__name__: each for each in (mlagents, trainers, plugins)}
    sys.modules.update({**modules, "mlagents.trainers.stats": stats, "mlagents.trainers.settings": settings})


def _package(name: str, **content: object) -> ModuleType:
    module = ModuleType(name, "Stands in for ML-Agents' module of this name.")
    module.__path__ = []  # nothing else is found in it
    module.__spec__ = importlib.util.spec_from_loader(name, loader=None, is_package=True)
    module.__dict__.update(content)
    return module
