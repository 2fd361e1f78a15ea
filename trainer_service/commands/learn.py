"""The command ``learn``: its flags, with ML-Agents' spellings, and what it does with them."""

from __future__ import annotations

import argparse
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.command import add_settings
from trainer_service.commands.common.output import print_results, print_warning, result_lines
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import ATTACH_PORT, nested, put, put_texts
from trainer_service.errors import UserError
from unity_bridge.transport.ports import port_number

if TYPE_CHECKING:
    from trainer_service.config import RunOptions
    from trainer_service.running.callbacks import Callback
    from trainer_service.running.collection.attach_port import AttachPort

# What is heavy is imported where it is needed: --help and a mistyped flag answer at once.

_RESUME = "--resume=true"
_WHICH = re.compile(r"\d+|best|latest")
"""Which checkpoint to go on from: its step, or one of these."""


def add_flags(learn: argparse.ArgumentParser) -> None:
    """Adds the flags of ``learn``. Absent ones are absent in the parsed arguments, so that only given ones override."""
    learn.add_argument(
        "trainer_config_path", nargs="?", default=None, type=Path, metavar="CONFIG.yaml",
        help="a file, or the name of a bundled configuration: 3dball",
    )  # fmt: skip
    add_settings(learn, "env_path")
    learn.add_argument(
        "--suggest", action=argparse.BooleanOptionalAction,
        help="without CONFIG.yaml: look at the environment and choose settings for it (default: if there is --env)",
    )  # fmt: skip
    _add_run(learn.add_argument_group("run"))
    _add_simulators(learn.add_argument_group("simulators"))
    add_settings(learn.add_argument_group("engine"), *_names_in("engine_settings"))
    add_settings(
        learn.add_argument_group("more processes and machines (docs/scaling.md)"), *_names_in("distributed")
    )
    _add_hidden_flags(learn)


def _add_run(run: Any) -> None:
    add = run.add_argument
    add_settings(
        run, "run_id", "resume", "autosave_interval_s", "force", "initialize_from", "inference", "results_dir"
    )
    add(
        "--set", dest="settings", action="append", metavar="KEY.KEY=VALUE",
        help="any setting of the file: behaviors.Walker.hyperparameters.batch_size=512; can be repeated",
    )  # fmt: skip
    add(
        "--seeds", metavar="SEEDS",
        help="a run for each of these seeds, such as 1-5 or 1,4,7: ID-1, ID-2 … (docs/running.md)",
    )  # fmt: skip
    add(
        "--jobs", type=int, metavar="N",
        help="with --seeds: runs at a time (default: half the number of cores)",
    )  # fmt: skip
    add(
        "--hooks", dest="callbacks", action="append", metavar="MODULE:CLASS",
        help="callbacks of yours; can be repeated",
    )  # fmt: skip
    add_settings(run, "track")
    add(
        "--watch", dest="watched", action="store_true",
        help="show the newest policy on a local page while it learns (extra watch)",
    )  # fmt: skip
    add("--no-browser", action="store_true", help="with --watch: print the page's address alone")
    add("--no-plugins", action="store_true", help="as if no plugin were installed")
    add("-q", dest="quiet", action="store_true", help="show summaries and warnings only")
    add("--deterministic", action="store_true", help="likeliest actions instead of drawn ones")
    add_settings(run, "seed", "max_env_steps", "debug", "log_format", "metrics_port", "device")


def _add_simulators(simulators: Any) -> None:
    add = simulators.add_argument
    add_settings(
        simulators, "num_envs", "isolate", "num_areas", "base_port", "picture_layout", "timeout_wait",
        "max_lifetime_restarts", "restarts_rate_limit_n", "restarts_rate_limit_period_s",
    )  # fmt: skip
    add("--host", metavar="ADDRESS", help="where simulators attach (default 127.0.0.1)")
    add("--port", type=port_number, metavar="PORT", help="the port for that (default 5004)")
    add(
        "--tls-cert", metavar="FILE",
        help="certificate of that port, in PEM (default: made for a --host beyond this machine)",
    )  # fmt: skip
    add("--tls-key", metavar="FILE", help="its private key, in PEM")
    add(
        "--token-file", metavar="FILE",
        help="tokens that the port accepts, one a line (default: made likewise)",
    )  # fmt: skip
    add(
        "--insecure-listen", action="store_true",
        help="no TLS and no token, though other machines reach --host; for a network that you trust",
    )  # fmt: skip
    add_settings(simulators, "env_args")


def _add_hidden_flags(learn: Any) -> None:
    """Adds the flags of ML-Agents 1.1.0 that its help does not show, and abbreviations that it takes."""
    add = learn.add_argument
    # Beginnings of ML-Agents' flags that flags of ours share stand here whole.
    add("--load", "--lo", "--l", dest="load_model", action="store_true", help=argparse.SUPPRESS)
    add("--see", "--se", "--s", dest="seed", type=int, help=argparse.SUPPRESS)
    add("--max-", "--max", "--ma", "--m", dest="max_lifetime_restarts", type=int, help=argparse.SUPPRESS)
    add("--train", "--tra", "--tr", dest="train_model", action="store_true", help=argparse.SUPPRESS)
    add("--w", dest="width", type=int, help=argparse.SUPPRESS)
    for flag in ("--torch", "--tensorflow"):
        add(flag, action="store_true", help=argparse.SUPPRESS)


def _names_in(section: str) -> list[str]:
    return [name for name, setting in SETTINGS.items() if setting.path.startswith(f"{section}.")]


def with_resume_joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--resume`` joined to its value, where the word after it is one.

    argparse would take the configuration's file for it.
    """
    joined: list[str] = []
    words = iter(arguments)
    for word in words:
        if joined and joined[-1] == _RESUME and _WHICH.fullmatch(word):
            joined[-1] = f"--resume={word}"
        elif word.startswith("--env-"):
            return [*joined, word, *words]  # everything after it is the simulators'
        else:
            joined.append(_RESUME if word in ("--resum", "--resume") else word)
    return joined


def learn(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style learn``. Returns the exit code."""
    from trainer_service.running.training.learner_ranks import serves_rank_0
    from trainer_service.running.training.stop_signals import StopSignals

    if serves_rank_0():
        from trainer_service.distributed.learners.rank import end_rank
        from trainer_service.distributed.learners.torchrun import serve_launched

        end_rank(serve_launched())
    given = vars(parsed)
    if "seeds" in given:
        from trainer_service.commands.search.seeds_table import learn_seeds

        return learn_seeds(given, _overrides(given))
    if "jobs" in given:
        raise UserError("--jobs: expected --seeds beside it, the runs that share the cores")
    if not given.keys().isdisjoint(ATTACH_PORT):
        # Before grpc is loaded. Else it writes a line for each handshake that fails, and a scanner fills the disk.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.commands.common.configuration import read_run
        from trainer_service.commands.train.run import train
        from trainer_service.running.callbacks import load_callback
        from trainer_service.running.metrics.console import Console

        for flag in ("torch", "tensorflow"):
            if flag in given:
                print_warning(f"The command line argument --{flag} was removed.")
        loaded = read_run(given.get("trainer_config_path"), _overrides(given))
        callbacks = [load_callback(name) for name in given.get("callbacks", [])]
        options, verbose = loaded.options, 1 if given.get("quiet") else 2
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
        if writes and not is_json and verbose > 1:
            print_results(*results)
    return 0


def _watched(options: RunOptions, given: Mapping[str, Any]) -> AbstractContextManager[None]:
    """A context in which a page shows the run, if the user asked for one."""
    if not given.get("watched"):
        return nullcontext()
    from trainer_service.commands.watch.command import watched

    saved = options.checkpoint_settings
    return watched(saved.results_dir, saved.run_id, browser=not given.get("no_browser"))


def _without_configuration(
    options: RunOptions, given: Mapping[str, Any]
) -> tuple[RunOptions, list[Callback]]:
    """The options of a run without a configuration file, and what records where they come from."""
    from trainer_service.commands.suggest.start import without_configuration

    return without_configuration(
        options, _overrides(given), wanted=given.get("suggest"), attach_port=_attach_port(given)
    )


def _attach_port(given: Mapping[str, Any]) -> AttachPort:
    """Where simulators may attach, as the flags say it."""
    from trainer_service.running.collection.attach_port import AttachPort

    return AttachPort(**{name: given[name] for name in ATTACH_PORT if name in given})


def _overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are present, nested as in the file. Raises ConfigError for a ``--set`` that cannot be read."""
    overrides = nested(given, SETTINGS)
    for path in (
        ["deterministic"],
        ["checkpoint_settings", "load_model"],
        ["checkpoint_settings", "train_model"],
    ):
        if path[-1] in given:
            put(overrides, path, given[path[-1]])
    if given.get("watched") and "autosave_interval_s" not in given:
        from trainer_service.commands.watch.command import WATCHED_AUTOSAVE_S

        put(overrides, ["checkpoint_settings", "autosave_interval_s"], WATCHED_AUTOSAVE_S)
    return put_texts(overrides, given.get("settings", ()))
