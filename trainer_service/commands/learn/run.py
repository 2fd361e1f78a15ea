"""A run from the flags of ``learn``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.configuration import read_run
from trainer_service.commands.common.output import print_warning
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import ATTACH_PORT, nested, put, put_texts
from trainer_service.commands.learn.results import print_results, result_lines
from trainer_service.commands.search.seeds_table import learn_seeds
from trainer_service.commands.suggest.start import without_configuration
from trainer_service.commands.train.run import train
from trainer_service.commands.watch.command import WATCHED_AUTOSAVE_S, watched
from trainer_service.running.callbacks import Callback, load_callback
from trainer_service.running.collection.attach_port import AttachPort
from trainer_service.running.metrics.console import Console
from trainer_service.running.training.stop_signals import StopSignals

if TYPE_CHECKING:
    from trainer_service.config import RunOptions


def run(given: Mapping[str, Any], stop: StopSignals) -> int:
    """Learns with the flags that are present. Returns the exit code."""
    if "seeds" in given:
        return learn_seeds(given, _overrides(given), stop)
    for flag in ("torch", "tensorflow"):
        if flag in given:
            print_warning(f"The command line argument --{flag} was removed.")
    loaded = read_run(given.get("trainer_config_path"), _overrides(given))
    callbacks = [load_callback(name) for name in given.get("callbacks", [])]
    options, verbose = loaded.options, 1 if given.get("quiet") else None
    with (
        _watched(options, given),
        Console(debug=options.debug, log_format=options.log_format, verbose=verbose) as console,
    ):
        loaded.log(logging.getLogger(__name__))
        if given.get("trainer_config_path") is None:
            options, recorders = _without_configuration(options, given)
            callbacks = [*callbacks, *recorders]
        outcome = train(
            options,
            console=console,
            attach_port=_attach_port(given),
            callbacks=callbacks,
            stop=stop,
        )
        results = (options, outcome.folder, list(outcome.steps), outcome.interrupted)
        writes = not options.checkpoint_settings.inference
        is_json = options.log_format == "json"
        if writes and is_json:
            console.log("\n".join(result_lines(*results)).strip())
    if writes and not is_json and verbose is None:
        print_results(*results)
    return 0


def _watched(options: RunOptions, given: Mapping[str, Any]) -> AbstractContextManager[None]:
    """A context in which a page shows the run, if the user asked for one."""
    if not given.get("watched"):
        return nullcontext()
    saved = options.checkpoint_settings
    return watched(saved.results_dir, saved.run_id, browser=not given.get("no_browser"))


def _without_configuration(
    options: RunOptions, given: Mapping[str, Any]
) -> tuple[RunOptions, list[Callback]]:
    """The options of a run without a configuration file, and what records where they come from."""
    return without_configuration(
        options, _overrides(given), wanted=given.get("suggest"), attach_port=_attach_port(given)
    )


def _attach_port(given: Mapping[str, Any]) -> AttachPort:
    """Where simulators may attach, as the flags say it."""
    return AttachPort(**{name: given[name] for name in ATTACH_PORT if name in given})


def _overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are present, nested as in the file. Raises ConfigError for a ``--set`` that cannot be read."""
    overrides = nested(given, SETTINGS)
    for path in (
        ["deterministic"],
        ["max_steps"],
        ["checkpoint_settings", "load_model"],
        ["checkpoint_settings", "train_model"],
    ):
        if path[-1] in given:
            put(overrides, path, given[path[-1]])
    if given.get("watched") and "autosave_interval_s" not in given:
        put(overrides, ["checkpoint_settings", "autosave_interval_s"], WATCHED_AUTOSAVE_S)
    return put_texts(overrides, given.get("settings", ()))
