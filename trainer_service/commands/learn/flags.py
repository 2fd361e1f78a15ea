"""The flags of ``learn``, with ML-Agents' spellings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_service.commands.common.command import add_settings
from trainer_service.commands.common.run_arguments import SETTINGS
from unity_bridge.transport.ports import port_number

_RESUME = "--resume=true"
_WHICH = re.compile(r"\d+|best|latest")
"""Which checkpoint to resume from: its step, or one of these."""


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
    add(
        "--max-steps",
        type=int,
        metavar="N",
        help="agent steps of each behavior, in the place of its max_steps",
    )
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
