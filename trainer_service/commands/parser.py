"""The flags of every command, with a hint at the nearest flag for an unknown one."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from trainer_service._version import __version__
from trainer_service.commands.common.run_arguments import SETTINGS
from unity_bridge.transport.ports import port_number

# argparse only: --help and a mistyped flag answer at once.

CLONE_SETTINGS = ("run_id", "force", "results_dir", "seed", "device")
"""Settings of a run that ``clone`` takes, too."""

_RESUME = "--resume=true"
_WHICH = re.compile(r"\d+|best|latest")
"""Which checkpoint to go on from: its step, or one of these."""


_SHARED: Mapping[str, Mapping[str, Any]] = {
    # Absent it is False, also where other absent flags are absent.
    "--json": {"action": "store_true", "default": False, "help": "print one JSON object and nothing else"},
    "--no-plugins": {"action": "store_true", "help": "as if no plugin were installed"},
    "RUN": {"metavar": "RUN", "help": "a run id, or the folder of a run"},
    "--results-dir": {
        "type": Path, "default": Path("results"), "metavar": "DIR",
        "help": "the folder of all runs (default results)",
    },
    "--torch-device": {"default": "cpu", "metavar": "DEVICE", "help": "cpu, cuda, cuda:0 … (default cpu)"},
    "--env-args": {"nargs": argparse.REMAINDER, "metavar": "…", "help": "for the simulator"},
    "--stochastic": {"action": "store_true", "help": "draw actions instead of the likeliest"},
    "--seed": {"type": int, "default": 20_000, "metavar": "N", "help": "of the simulator and the draws"},
    "--max-episode-steps": {
        "type": int, "metavar": "N",
        "help": "cut episodes after N steps of an agent; they count as truncated (default: no limit)",
    },
    "--record": {
        "type": Path, "metavar": "FILE", "help": "record bundled environments: a .gif or an .mp4 file"
    },
    "--record-episodes": {"type": int, "metavar": "N", "help": "record so many of the first agent"},
    "--record-seconds": {"type": float, "metavar": "S", "help": "record so long (default 30)"},
}  # fmt: skip
"""Arguments that several commands have."""

_FILM = ("--record", "--record-episodes", "--record-seconds")

_INVALID = re.compile(r"invalid (?P<kind>int|float) value: (?P<value>.*)")
"""Argparse's message about a value that is no number."""

_OF_SIMULATORS = {"--mlagents-port": "--port"}
"""Flags of simulators that have another name here."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``mlagents-style``. It sets ``command``, a name, and ``parser``, the command's own.

    Absent flags of ``learn`` are absent in the parsed arguments, so that only given flags override a file.
    """
    parser = _Parser(
        prog="mlagents-style",
        description="Trains agents that live in a simulator, over the ML-Agents protocol.",
    )
    parser.add_argument("--version", action="version", version=f"trainer-service {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_learn(commands)
    _add_suggest(commands)
    _add_check(commands)
    _add_configs(commands)
    _add_evaluate(commands)
    _add_compare(commands)
    _add_report(commands)
    _add_status(commands)
    _add_play(commands)
    _add_watch(commands)
    _add_demo(commands)
    _add_record_demo(commands)
    _add_demo_info(commands)
    _add_demo_convert(commands)
    _add_clone(commands)
    _add_sweep(commands)
    _add_simulate(commands)
    _add_relay(commands)
    _add_export(commands)
    _add_import(commands)
    _add_push(commands)
    _add_load(commands)
    _add_doctor(commands)
    _command(commands, "schema", help="print the JSON Schema of the configuration, for editors")
    alias = _command(commands, "alias", help="let mlagents-learn be another name of learn, for old scripts")
    alias.add_argument("--remove", action="store_true", help="switch it off again")
    return parser


def _command(commands: Any, name: str, **texts: Any) -> Any:
    """The parser of a command."""
    command = commands.add_parser(name, **texts)
    command.set_defaults(command=name, parser=command)
    return command


def _add(command: Any, *names: str) -> None:
    """Adds arguments that several commands have."""
    for name in names:
        command.add_argument(name if name.startswith("-") else name.lower(), **_SHARED[name])


def _add_learn(commands: Any) -> None:
    learn = _command(
        commands, "learn", help="train", argument_default=argparse.SUPPRESS,
        description="Trains the behaviors of a simulator. Flags win over the configuration file.",
    )  # fmt: skip
    learn.add_argument(
        "trainer_config_path", nargs="?", default=None, type=Path, metavar="CONFIG.yaml",
        help="a file, or the name of a bundled configuration: 3dball",
    )  # fmt: skip
    _add_settings(learn, "env_path")
    learn.add_argument(
        "--suggest", action=argparse.BooleanOptionalAction,
        help="without CONFIG.yaml: look at the environment and choose settings for it (default: if there is --env)",
    )  # fmt: skip
    _add_run(learn.add_argument_group("run"))
    _add_simulators(learn.add_argument_group("simulators"))
    _add_settings(learn.add_argument_group("engine"), *_names_in("engine_settings"))
    _add_settings(
        learn.add_argument_group("more processes and machines (docs/scaling.md)"), *_names_in("distributed")
    )
    _add_hidden_flags(learn)


def _add_run(run: Any) -> None:
    add = run.add_argument
    _add_settings(
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
    _add_settings(run, "track")
    add(
        "--watch", dest="watched", action="store_true",
        help="show the newest policy on a local page while it learns (extra watch)",
    )  # fmt: skip
    add("--no-browser", action="store_true", help="with --watch: print the page's address alone")
    _add(run, "--no-plugins")
    add("-q", dest="quiet", action="store_true", help="show summaries and warnings only")
    add("--deterministic", action="store_true", help="likeliest actions instead of drawn ones")
    _add_settings(run, "seed", "max_env_steps", "debug", "log_format", "metrics_port", "device")


def _add_simulators(simulators: Any) -> None:
    add = simulators.add_argument
    _add_settings(
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
    _add_settings(simulators, "env_args")


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


_KINDS: Mapping[str, Mapping[str, Any]] = {
    "int": {"type": int},
    "float": {"type": float},
    "str": {},
    "list": {"action": "append"},
    "bool": {"action": "store_true"},
}
_LIKE_NO_OTHER: Mapping[str, Mapping[str, Any]] = {
    "resume": {"nargs": "?", "const": True},
    "isolate": {"action": argparse.BooleanOptionalAction},
    "env_args": {"nargs": argparse.REMAINDER},
}


def _names_in(section: str) -> list[str]:
    return [name for name, setting in SETTINGS.items() if setting.path.startswith(f"{section}.")]


def _add_settings(group: Any, *names: str) -> None:
    """Adds the flags of settings, as their models describe them."""
    for name in names:
        setting = SETTINGS[name]
        shape = dict(_LIKE_NO_OTHER.get(name) or _KINDS[setting.kind])
        if setting.metavar:
            shape["metavar"] = setting.metavar
        group.add_argument(setting.flag, dest=name, help=setting.help.replace("%", "%%"), **shape)


def _add_suggest(commands: Any) -> None:
    suggest = _command(
        commands, "suggest", help="print a configuration for an environment", argument_default=argparse.SUPPRESS,
        description="Plays an environment at random for a moment, and prints a configuration that suits it: the reason "
        "for each value is a comment. Without --env a simulator may attach.",
    )  # fmt: skip
    _add_settings(suggest, "env_path")
    suggest.add_argument("--host", metavar="ADDRESS", help="where a simulator attaches (default 127.0.0.1)")
    suggest.add_argument("--port", type=port_number, metavar="PORT", help="the port for that (default 5004)")
    _add_settings(
        suggest,
        "num_areas",
        "isolate",
        "picture_layout",
        "timeout_wait",
        "time_scale",
        "no_graphics",
        "env_args",
    )


def _add_check(commands: Any) -> None:
    check = _command(commands, "check", help="validate configurations without running them")
    _add(check, "--no-plugins", "--json")
    check.add_argument("files", nargs="+", type=Path, metavar="CONFIG.yaml", help="what to validate")


def _add_configs(commands: Any) -> None:
    configs = _command(
        commands, "configs", help="list ready configurations, or copy them",
        description="Lists the configurations that come along, with the --env that each is made for; or copies some.",
    )  # fmt: skip
    configs.add_argument("names", nargs="*", metavar="NAME", help="which to copy, to change them")
    configs.add_argument("--to", type=Path, metavar="DIR", help="where to (default: the current folder)")
    configs.add_argument("--force", action="store_true", help="overwrite files that exist")
    _add(configs, "--json")


def _add_evaluate(commands: Any) -> None:
    evaluate = _command(commands, "evaluate", help="play a frozen policy and report its returns")
    add = evaluate.add_argument
    add(
        "run_id",
        metavar="RUN_ID",
        help="a run, by id or folder, RUN_ID@STEP or RUN_ID@best; with --against any player",
    )
    add(
        "--against", nargs="+", metavar="PLAYER",
        help="games against RUN_ID, RUN_ID@STEP, RUN_ID@best, FILE.safetensors, random, expert (the scene's own) or "
        "human (you, by keyboard or gamepad on a local page)",
    )  # fmt: skip
    _add_page(evaluate.add_argument_group("the page of --against human"))
    add(
        "--side", metavar="SIDE",
        help="with --against: play this team or behavior only (default: all sides in turn)",
    )  # fmt: skip
    add("--cross-play", action="store_true", help="with --against: everyone plays against everyone else")
    add(
        "--env", metavar="ENV",
        help="where to play (default: what the run was trained on, which keeps its --env-args, too)",
    )  # fmt: skip
    add(
        "--checkpoint", default="last", metavar="WHICH",
        help="last, best (of the run's evaluations), a step, or a file (default last)",
    )  # fmt: skip
    add(
        "--episodes", type=int, default=100, metavar="N",
        help="of agents, per behavior; with --against games of each pair (default 100)",
    )  # fmt: skip
    _add(
        evaluate,
        "--max-episode-steps",
        "--seed",
        "--stochastic",
        "--json",
        *_FILM,
        "--results-dir",
        "--torch-device",
        "--env-args",
    )


def _add_compare(commands: Any) -> None:
    compare = _command(
        commands, "compare", help="compare runs over seeds",
        description="Compares what runs of this trainer and of ML-Agents learned, finished or not. Runs that differ in "
        "their seed only are one group: its scores are interquartile means with 95 % bootstrap intervals.",
    )  # fmt: skip
    add = compare.add_argument
    add("runs", nargs="+", metavar="RUN", help="a run id, or the folder of a run")
    add(
        "--metric", metavar="NAME",
        help="a key of metrics.jsonl or a tag of TensorBoard (default mean_group_return where all runs have groups, "
        "else mean_return; evaluation/mean_return: of the evaluations while training)",
    )  # fmt: skip
    add("--behavior", metavar="NAME", help="which (default: all that the runs have in common)")
    add(
        "--group-by", choices=("config", "name", "run"), default="config",
        help="config: equal configurations but for the seed; name: equal run ids but for the number at the end; "
        "run: each alone (default config)",
    )  # fmt: skip
    add("--threshold", type=float, metavar="X", help="when did they reach this value?")
    add("--until", type=int, metavar="STEPS", help="count nothing after so many steps")
    add("--plot", type=Path, metavar="FILE", help="draw the curves: a .png, .svg or .pdf file")
    add("--title", default="", metavar="TEXT", help="of the picture")
    add(
        "--to", type=Path, metavar="FILE",
        help="write the table: a .csv, .md or .tex file; with --tasks also .json for marl-eval or .npz for rliable",
    )  # fmt: skip
    add("--tasks", action="store_true", help="compare methods over several tasks, by normalized final scores")
    add(
        "--method", dest="methods", action="append", default=[], metavar="NAME=PATTERN",
        help="with --tasks: the run ids of a method; can be repeated (default: each trainer type is a method)",
    )  # fmt: skip
    add(
        "--bounds", action="append", default=[], metavar="TASK=LOW,HIGH",
        help="with --tasks: the scores of a task that become 0 and 1; can be repeated (default: lowest and highest)",
    )  # fmt: skip
    _add(compare, "--json", "--results-dir")


def _add_report(commands: Any) -> None:
    report = _command(
        commands, "report", help="write a page on a run that can be mailed",
        description="Writes one HTML file on a run of this trainer or of ML-Agents, finished or not: curves, scores, "
        "film, configuration, timers and how it ended. It needs nothing beside it.",
    )  # fmt: skip
    _add(report, "RUN")
    report.add_argument(
        "--to", type=Path, metavar="FILE", help="where (default report.html in the run's folder)"
    )
    _add(report, "--json", "--results-dir")


def _add_status(commands: Any) -> None:
    status = _command(
        commands, "status", help="what a run is doing, or how it ended",
        description="Tells from a run's folder what it is doing, or how it ended. Exit code 0: it is running, or it "
        "ended well; 1: it failed, was broken off, learned nothing, or is a run of ML-Agents without an end; 2: there "
        "is no such run.",
    )  # fmt: skip
    _add(status, "RUN", "--json", "--results-dir")


def _add_play(commands: Any) -> None:
    play = _command(
        commands, "play", help="play episodes of an environment without a trainer",
        description="Plays episodes of an environment with random actions, with the scene's own expert or with a run's "
        "policies. Prints a line for each episode and the scores; nothing is written but a film that you ask for.",
    )  # fmt: skip
    add = play.add_argument
    add("env", metavar="ENV", help="where to play: an executable, sim:NAME, gym:ID, pettingzoo:MODULE …")
    add(
        "--policy", default="random", metavar="PLAYER",
        help="random, expert (the scene's own), a run, RUN_ID@STEP, RUN_ID@best or FILE.safetensors (default random)",
    )  # fmt: skip
    add("--episodes", type=int, default=5, metavar="N", help="of agents, per behavior (default 5)")
    _add(play, "--max-episode-steps", "--seed")
    add("--stochastic", action="store_true", help="draw actions of a run's policy instead of the likeliest")
    _add(play, "--json", *_FILM)
    _add_settings(play, "time_scale", "no_graphics")
    _add(play, "--results-dir", "--torch-device", "--env-args")


def _add_watch(commands: Any) -> None:
    watch = _command(
        commands, "watch", help="watch a policy act on a local page, and play yourself",
        description="Opens a page on this machine: the scene as it runs, returns, action probabilities and expected "
        "returns, with pause, single steps, speed and checkpoints. By keyboard or gamepad you take over an agent.",
    )  # fmt: skip
    add = watch.add_argument
    add(
        "target",
        metavar="RUN|ENV",
        help="a run id, the folder of a run, or sim:NAME, gym:ID, pettingzoo:MODULE …",
    )
    add("--env", metavar="ENV", help="another environment than the run's own")
    add("--random", action="store_true", help="random actions in ENV (the default there)")
    add("--expert", action="store_true", help="the scene's own expert in ENV")
    add(
        "--checkpoint", default="last", metavar="WHICH",
        help="of the run: last, best or a step (default last)",
    )  # fmt: skip
    add("--follow", action="store_true", help="show every policy that the run saves from now on")
    add("--begun-after", type=float, default=0.0, help=argparse.SUPPRESS)
    _add(watch, "--stochastic")
    add("--seed", type=int, default=20_000, metavar="N", help="of the environment and the draws")
    _add_page(watch)
    _add(watch, "--results-dir", "--env-args")


def _add_demo(commands: Any) -> None:
    demo = _command(
        commands, "demo", help="train a small scene and watch it learn",
        description="Trains 3DBall for half a minute or so and shows the policy on a local page while it learns. The "
        "run is results/demo; a run demo that exists is overwritten.",
    )  # fmt: skip
    _add_page(demo)
    _add(demo, "--results-dir")


def _add_page(command: Any) -> None:
    """The flags of the local page."""
    command.add_argument(
        "--port", type=port_number, default=0, metavar="PORT", help="of the page (default: a free one)"
    )
    command.add_argument(
        "--no-browser", dest="browser", action="store_false",
        help="print the page's address without opening it",
    )  # fmt: skip


def _add_record_demo(commands: Any) -> None:
    record = _command(
        commands, "record-demo", help="record demonstrations for imitation",
        description="Records whole episodes of an expert or a trained policy in a .demo file.",
    )  # fmt: skip
    add = record.add_argument
    add("env", metavar="ENV", help="where to play: an executable, sim:NAME, gym:ID")
    add(
        "--policy", required=True, metavar="RUN_ID|heuristic|keyboard",
        help="the demonstrator: a run, the scene's own expert, or you on a local page",
    )  # fmt: skip
    _add_page(record.add_argument_group("the page of --policy keyboard"))
    add("--episodes", type=int, default=10, metavar="N", help="the first N that start (default 10)")
    _add(record, "--max-episode-steps")
    add("-o", "--output", required=True, type=Path, metavar="FILE.demo", help="what to write")
    add("--behavior", metavar="NAME", help="which, if there are several")
    add("--seed", type=int, default=0, metavar="N", help="of the simulator and the draws")
    _add(record, "--stochastic")
    add("--force", action="store_true", help="replace a file that exists")
    _add(record, "--json", "--results-dir", "--torch-device", "--env-args")


def _add_demo_info(commands: Any) -> None:
    info = _command(commands, "demo-info", help="what is inside recorded demonstrations")
    info.add_argument(
        "paths", nargs="+", type=Path, metavar="FILE.demo", help="a recording, or a folder of them"
    )
    _add(info, "--json")


def _add_demo_convert(commands: Any) -> None:
    convert = _command(
        commands, "demo-convert", help="make a recording of a data set of Minari, or the reverse",
        description="Converts between recordings (.demo) and data sets of Minari on this machine.",
    )  # fmt: skip
    convert.add_argument("source", metavar="FROM", help="minari:NAME, or a .demo file or a folder of them")
    convert.add_argument("target", metavar="TO", help="the other one: FILE.demo, or minari:NAME")
    convert.add_argument(
        "--behavior", metavar="NAME",
        help="the behavior of the recording (default: the id of the data set's environment, or the data set's name)",
    )  # fmt: skip
    convert.add_argument("--force", action="store_true", help="replace a recording that exists")
    _add(convert, "--json")


def _add_clone(commands: Any) -> None:
    clone = _command(
        commands, "clone", help="learn from demonstrations, without a simulator", argument_default=argparse.SUPPRESS,
        description="Makes a run by behavioral cloning of demonstrations. Networks and trainer type are those of the "
        "behavior in the configuration; without one, those of PPO's built-in settings.",
    )  # fmt: skip
    clone.add_argument(
        "config", nargs="?", metavar="CONFIG.yaml",
        help="a file, or the name of a bundled configuration: 3dball",
    )  # fmt: skip
    clone.add_argument(
        "--demo", required=True, metavar="PATH", help="a recording (.demo), or a folder of them"
    )
    length = clone.add_mutually_exclusive_group()
    length.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the demonstrations (default 100)"
    )
    length.add_argument(
        "--max-steps", type=int, metavar="N", help="demonstrated steps to learn from, in whole passes"
    )
    _add_settings(clone, *CLONE_SETTINGS)
    _add(clone, "--json")


def _add_sweep(commands: Any) -> None:
    sweep = _command(
        commands, "sweep", help="search hyperparameters", argument_default=argparse.SUPPRESS,
        description="Searches hyperparameters with Optuna: trials of sampled values, each a run of its own.",
    )  # fmt: skip
    add = sweep.add_argument
    sweep.set_defaults(dry_run=False, resume=False)
    add(
        "trainer_config_path", type=Path, metavar="CONFIG.yaml",
        help="the configuration of all trials: a file, or the name of a bundled configuration",
    )  # fmt: skip
    add("--space", required=True, type=Path, metavar="SPACE.yaml", help="the parameters")
    _add_settings(sweep, "env_path")
    add("--jobs", type=int, metavar="K", help="trials at a time (default 1)")
    add(
        "--objective", metavar="NAME",
        help="a key of metrics.jsonl or a tag of TensorBoard (default: the return; of groups, of evaluations if any)",
    )  # fmt: skip
    add("--run-id", metavar="ID", help="name of the sweep's folder (default sweep)")
    add("--resume", action="store_true", help="continue the sweep in that folder")
    _add(sweep, "--json")
    add(
        "--set", dest="settings", action="append", metavar="KEY.KEY=VALUE",
        help="any setting of the file, for all trials; can be repeated",
    )  # fmt: skip
    add(
        "--ray-address", metavar="ADDRESS",
        help="run trials on a Ray cluster whose nodes share the results folder: auto, HOST:PORT, ray://HOST:PORT; "
        "local starts one",
    )  # fmt: skip
    add("--insecure-ray", action="store_true", help="the cluster may accept everyone")
    add("--trials", type=int, metavar="N", help="number of trials (default 20)")
    add("--seeds", type=int, metavar="M", help="runs of each trial, averaged (default 1)")
    add("--behavior", metavar="NAME", help="whose score counts (default: the mean of all)")
    add("--direction", choices=("maximize", "minimize"), help="(default maximize)")
    add("--sampler", choices=("tpe", "random"), help="how values are drawn (default tpe)")
    add("--pruner", choices=("median", "hyperband", "none"), help="which trials end early (default median)")
    add("--total-steps", type=int, metavar="N", help="agent steps after which no trial begins")
    add("--wall-clock", metavar="TIME", help="save and end after this time: 2h, 90min")
    add("--dry-run", action="store_true", help="print the values of the first trials only")
    _add_settings(
        sweep, "max_env_steps", "results_dir", "seed", "num_envs", "isolate", "num_areas", "time_scale", "no_graphics",
        "timeout_wait", "device", "env_args",
    )  # fmt: skip


def _add_simulate(commands: Any) -> None:
    simulate = _command(
        commands, "simulate", help="run an environment as a simulator, by hand", add_help=False,
        description="Attaches an environment to a running trainer: a bundled scene, an environment of Gymnasium, "
        "PettingZoo or another library, or a scene in a Python file.",
    )  # fmt: skip
    simulate.add_argument("rest", nargs=argparse.REMAINDER, metavar="ENV …")


def _add_doctor(commands: Any) -> None:
    doctor = _command(
        commands, "doctor", help="what is broken in this installation or set-up", argument_default=argparse.SUPPRESS,
        description="Looks at the installation, this machine, and a configuration and a simulator if they are given.",
    )  # fmt: skip
    add = doctor.add_argument
    add(
        "trainer_config_path", nargs="?", default=None, type=Path, metavar="CONFIG.yaml",
        help="a configuration to validate",
    )  # fmt: skip
    add("--env", dest="env_path", metavar="ENV", help="a simulator to start and talk with")
    add("--no-graphics", action="store_true", help="start the simulator without a window")
    add("--timeout-wait", type=int, metavar="SECONDS", help="patience with the simulator")
    add("--results-dir", metavar="DIR", help="where results would go (default results)")
    add("--port", type=port_number, metavar="PORT", help="where simulators would attach (default 5004)")
    add("--torch-device", dest="device", metavar="DEVICE", help="cpu, cuda, cuda:0 …")
    add(
        "--ray", dest="ray_address", metavar="ADDRESS",
        help="a Ray cluster to look at, and for --env on its nodes: auto, HOST:PORT, ray://HOST:PORT; local starts one",
    )  # fmt: skip
    add("--insecure-ray", action="store_true", help="look at it even if it asks nobody for a token")
    add(
        "--join", nargs="?", const="", metavar="CODE",
        help="the join code of a trainer on another machine; without CODE that in TRAINER_SERVICE_JOIN",
    )  # fmt: skip
    add("--address", metavar="HOST:PORT", help="where that trainer is (default: what its code says)")
    _add(doctor, "--json", "--env-args")


def _add_relay(commands: Any) -> None:
    relay = _command(
        commands, "relay", help="run simulators here for a trainer on another machine",
        argument_default=argparse.SUPPRESS,
        description="Starts simulators on this machine, or waits for the Unity Editor, and carries their messages to a "
        "trainer on another machine (docs/remote.md).",
    )  # fmt: skip
    add = relay.add_argument
    add(
        "--join", nargs="?", const="", default=None, metavar="CODE",
        help="the join code that the trainer prints; without CODE that in TRAINER_SERVICE_JOIN",
    )  # fmt: skip
    add(
        "--address", default=None, metavar="HOST:PORT",
        help="the trainer's address, if not one of the code's; without a code only an address of this machine",
    )  # fmt: skip
    add("--port", type=port_number, metavar="PORT", help="where the Editor attaches (default 5004)")
    _add_settings(
        relay, "env_path", "num_envs", "base_port", "timeout_wait", "max_lifetime_restarts",
        "restarts_rate_limit_n", "restarts_rate_limit_period_s", "no_graphics", "no_graphics_monitor",
    )  # fmt: skip
    add("--run-logs", type=Path, default=None, metavar="DIR", help="keep the simulators' output there")
    _add_settings(relay, "env_args")


def _add_export(commands: Any) -> None:
    export = _command(commands, "export", help="write the ONNX models of a run again, from its checkpoints")
    export.add_argument("run_id", metavar="RUN_ID", help="a run id, or the folder of a run")
    which = export.add_mutually_exclusive_group()
    which.add_argument("--step", type=int, metavar="N", help="the checkpoints of this step, not the newest")
    which.add_argument("--checkpoint", type=Path, metavar="FILE", help="this checkpoint")
    export.add_argument(
        "--output", type=Path, metavar="PATH", help="a file.onnx or a folder (default: the run's)"
    )
    _add(export, "--json", "--results-dir")


def _add_import(commands: Any) -> None:
    imports = _command(
        commands, "import-checkpoint", help="make a run from a results folder of ML-Agents",
        description="Makes a run from the results of mlagents-learn 1.1.0, to evaluate, export or resume.",
    )  # fmt: skip
    add = imports.add_argument
    add("results_folder", type=Path, metavar="RESULTS_FOLDER", help="results/ID of ML-Agents")
    add("--run-id", required=True, metavar="ID", help="the id of the new run")
    add("--results-dir", type=Path, default=Path("results"), metavar="DIR", help="where it goes")
    _add(imports, "--json")


def _add_push(commands: Any) -> None:
    push = _command(
        commands, "push", help="share a run on the Hugging Face Hub",
        description="Evaluates a run and uploads weights, models, configuration, metrics and a card to the Hugging "
        "Face Hub: no paths, host names or arguments of simulators. Takes the flags of mlagents-push-to-hf, too.",
    )  # fmt: skip
    add = push.add_argument
    which = push.add_mutually_exclusive_group(required=True)
    which.add_argument("run", nargs="?", metavar="RUN", help="a run id, or the folder of a run")
    which.add_argument("--run-id", metavar="ID", help="the same, as mlagents-push-to-hf has it")
    add("--local-dir", type=Path, metavar="DIR", help="the folder of the run, with --run-id")
    add("--repo", "--repo-id", dest="repo_id", required=True, metavar="USER/NAME", help="made if need be")
    add("--private", action="store_true", help="make a new repository private")
    add("--commit-message", default="Push to Hub", metavar="TEXT", help="of the upload (default Push to Hub)")
    add("--to", type=Path, metavar="DIR", help="write the files there, and upload nothing")
    add("--checkpoint", default="last", metavar="WHICH", help="last, best or a step (default last)")
    add("--with-state", action="store_true", help="share optimizers, too, for an exact --resume")
    add("--episodes", type=int, default=100, metavar="N", help="of the evaluation (default 100)")
    add("--no-evaluation", dest="episodes", action="store_const", const=0, help="share no scores")
    _add(push, "--max-episode-steps")
    add("--seed", type=int, default=20_000, metavar="N", help="of the evaluation")
    add("--film", action="store_true", help="record the evaluation: replay.mp4")
    _add(push, "--json", "--results-dir")
    add("--env", metavar="ENV", help="where to evaluate (default: where it was trained)")
    _add(push, "--env-args")


def _add_load(commands: Any) -> None:
    load = _command(
        commands, "load", help="make a run of a repository on the Hugging Face Hub",
        description="Makes a run of a repository on the Hugging Face Hub, of this trainer or of ML-Agents. Executes "
        "nothing of it. Takes the flags of mlagents-load-from-hf, too.",
    )  # fmt: skip
    which = load.add_mutually_exclusive_group(required=True)
    which.add_argument("repo", nargs="?", metavar="USER/NAME", help="the repository")
    which.add_argument("--repo-id", metavar="USER/NAME", help="the same, as mlagents-load-from-hf has it")
    load.add_argument("--run-id", metavar="ID", help="of the run that is made (default: NAME)")
    load.add_argument("--revision", metavar="REVISION", help="a branch, tag or commit (default: the newest)")
    _add(load, "--json")
    load.add_argument(
        "--results-dir", "--local-dir", dest="results_dir", type=Path, default=Path("results"), metavar="DIR",
        help="where the run goes (default results)",
    )  # fmt: skip


def _with_resume_joined(arguments: Sequence[str]) -> list[str]:
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


def _expected(refusal: re.Match[str]) -> str:
    """argparse's refusal of a value in our words."""
    kind = {"int": "a whole number", "float": "a number"}[refusal["kind"]]
    value = refusal["value"]
    return f"expected {kind}, got {'nothing' if value == repr('') else value}"


class _Parser(argparse.ArgumentParser):
    """An argument parser that names the nearest flag or command."""

    def parse_known_args(  # type: ignore[override]  # the overloads differ in the namespace, which is handed on
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        arguments = list(sys.argv[1:] if args is None else args)
        if arguments[:1] == ["learn"]:
            arguments = _with_resume_joined(arguments)
        return super().parse_known_args(arguments, namespace)

    def error(self, message: str) -> NoReturn:
        message = _INVALID.sub(_expected, message)
        known = [option for action in self._actions for option in action.option_strings]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                known += list(action.choices)
        for word in re.sub("['=:]", " ", message.partition(": expected ")[0]).split():
            near = difflib.get_close_matches(_OF_SIMULATORS.get(word, word), known, n=1, cutoff=0.75)
            if near and near[0] != word and word not in known:
                message += f" (did you mean '{near[0]}'?)"
                break
        super().error(message)
