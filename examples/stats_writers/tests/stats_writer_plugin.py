"""A plugin of ML-Agents' group ``mlagents.stats_writer``, as a folder that is to be searched for modules.

It writes down how it is called, one line of JSON per call, and runs in ML-Agents as it runs here.
"""

from __future__ import annotations

from pathlib import Path

MODULE = '''
import json
import os

from mlagents.plugins import ML_AGENTS_STATS_WRITER
from mlagents.trainers.settings import RunOptions
from mlagents.trainers.stats import StatsPropertyType, StatsSummary, StatsWriter, TensorboardWriter
from mlagents.trainers.stats import StatsAggregationMethod, StatsReporter
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


def note(**call):
    with open(os.environ["STATS_CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")


class Recording(StatsWriter):
    def on_add_stat(self, category, key, value, aggregation=StatsAggregationMethod.AVERAGE):
        note(call="on_add_stat", category=category, key=key, value=float(value), aggregation=aggregation.name)

    def write_stats(self, category, values, step):
        stats = {
            key: {
                "aggregation": each.aggregation_method.name,
                "mean": float(each.mean),
                "std": float(each.std),
                "sum": float(each.sum),
                "num": int(each.num),
                "value": float(each.aggregated_value),
            }
            for key, each in values.items()
        }
        note(call="write_stats", category=category, step=step, stats=stats)

    def add_property(self, category, property_type, value):
        assert isinstance(property_type, StatsPropertyType)
        note(call="add_property", category=category, kind=property_type.name, value=value)


class Broken(StatsWriter):
    def write_stats(self, category, values, step):
        raise ValueError("it never works")


class Further(StatsWriter):
    """Looks for the writer that is always there, and puts a value of its own beside."""

    def write_stats(self, category, values, step):
        board = next(each for each in StatsReporter.writers if isinstance(each, TensorboardWriter))
        board.write_stats(category, {"Further": StatsSummary([4.0, 6.0], StatsAggregationMethod.AVERAGE)}, step)


def make(run_options: RunOptions):
    saved = run_options.checkpoint_settings
    note(
        call="make",
        run_id=saved.run_id,
        write_path=saved.write_path,
        resume=saved.resume,
        seed=run_options.env_settings.seed,
        max_steps={name: each.max_steps for name, each in run_options.behaviors.items()},
        batch_size=[
            each["hyperparameters"]["batch_size"] for each in run_options.as_dict()["behaviors"].values()
        ],
        group=ML_AGENTS_STATS_WRITER,
    )
    logger.info("made")
    return [Recording()]


def make_further(run_options):
    return [Further()]


def make_broken(run_options):
    return [Broken()]


def fail(run_options):
    raise SystemExit("no such server")
'''


def install(folder: Path, **functions: str) -> Path:
    """Makes the plugin in a folder, with entry points that lead to these functions. Returns the folder."""
    folder.mkdir(parents=True)
    (folder / "recording_stats.py").write_text(MODULE)
    metadata = folder / "recording_stats-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: recording-stats\nVersion: 1.0\n")
    lines = [f"{name} = recording_stats:{function}" for name, function in functions.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[mlagents.stats_writer]", *lines, ""]))
    return folder
