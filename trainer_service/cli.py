"""The command line: ``mlagents-style COMMAND …``."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import trainer_service
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.config import LoadedOptions, RunOptions
    from trainer_service.evaluation import Score
    from trainer_service.policy import Policy

# Everything heavy is imported in the command that needs it: --help and a mistyped flag answer at once.

_SECTION_OF_FLAG: Mapping[str, tuple[str, ...]] = {
    "checkpoint_settings": (
        "run_id", "resume", "force", "initialize_from", "inference", "results_dir", "load_model", "train_model",
    ),
    "env_settings": (
        "env_path", "env_args", "base_port", "num_envs", "num_areas", "timeout_wait", "seed",
        "max_lifetime_restarts", "restarts_rate_limit_n", "restarts_rate_limit_period_s",
    ),
    "engine_settings": (
        "width", "height", "quality_level", "time_scale", "target_frame_rate", "capture_frame_rate",
        "no_graphics", "no_graphics_monitor",
    ),
    "torch_settings": ("device",),
}  # fmt: skip
"""Where in the configuration a flag belongs; it wins there over the file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0 well, 1 a simulator failed, 2 the user can mend it."""
    from unity_bridge.errors import BridgeError, LaunchError, PortInUse

    parsed, unknown = _parser().parse_known_args(arguments)
    if unknown:
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        return command(parsed)
    except UserError as error:
        _complain(str(error))
        return error.exit_code
    except (LaunchError, PortInUse) as error:
        _complain(str(error))
        return 2
    except BridgeError as error:
        _complain(str(error))
        return 1
    except BrokenPipeError:
        # Whoever read our output is gone (`… | head`). Nothing more can be said, not even by the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130


def _learn(parsed: argparse.Namespace) -> int:
    from trainer_service.config import load_run_options
    from trainer_service.console import Console
    from trainer_service.training import train

    given = vars(parsed)
    for flag in ("torch", "tensorflow"):
        if flag in given:
            _note(f"The command line argument --{flag} was removed.")
    loaded = load_run_options(given.get("trainer_config_path"), _overrides(given))
    with Console(debug=loaded.options.debug) as console:
        _tell_warnings(loaded)
        outcome = train(
            loaded.options,
            console=console,
            host=given.get("host", "127.0.0.1"),
            port=given.get("port", 5004),
        )
    if not loaded.options.checkpoint_settings.inference:
        _say_where(loaded.options, outcome.folder, list(outcome.steps), outcome.interrupted)
    return 0


def _check(parsed: argparse.Namespace) -> int:
    from trainer_service.config import check_files

    checks = check_files(parsed.files)
    for check in checks:
        # One line per file for whoever counts them; what lies behind a verdict goes to standard error.
        print(check, flush=True)
        for detail in check.details:
            print(f"  {detail}", file=sys.stderr, flush=True)
    return 0 if all(check.ok for check in checks) else 2


def _evaluate(parsed: argparse.Namespace) -> int:
    from contextlib import ExitStack

    from trainer_service.console import Console
    from trainer_service.evaluation import evaluate
    from trainer_service.run import RunFolder
    from trainer_service.training import engine_settings
    from unity_bridge.launcher import resolve_program
    from unity_bridge.server import Bridge, BridgeSettings

    if parsed.episodes < 1:
        raise UserError(f"--episodes: expected at least 1, got {parsed.episodes}")
    folder = RunFolder.read(parsed.results_dir, parsed.run_id)
    trained_with = _run_options(folder.configuration)
    environment = trained_with.env_settings
    env = parsed.env or environment.env_path
    if env is None:
        raise UserError(
            f"run '{parsed.run_id}' was trained by simulators that attached; say what to evaluate on with --env"
        )
    env_args = list(parsed.env_args or (environment.env_args if not parsed.env else None) or ())
    command = resolve_program(
        env,
        [*env_args, *_recording(env, parsed.record)],
        no_graphics=trained_with.engine_settings.no_graphics,
        no_graphics_monitor=trained_with.engine_settings.no_graphics_monitor,
    )
    with ExitStack() as stack:
        # All that is said on the way goes to standard error: standard output is for the result.
        stack.enter_context(Console(tty=False, stream=sys.stderr))
        settings = BridgeSettings(
            seed=parsed.seed,
            num_areas=environment.num_areas,
            timeout_wait_s=environment.timeout_wait,
            engine=engine_settings(trained_with),
            max_lifetime_restarts=0,
        )
        bridge = stack.enter_context(Bridge(settings))
        bridge.launch(command, 1)
        policies = _policies(folder.path, parsed.torch_device, parsed.seed)
        scores = evaluate(
            bridge,
            policies,
            episodes=parsed.episodes,
            deterministic=not parsed.stochastic,
            progress=_progress(),
        )
    _print_scores(parsed, policies, scores)
    if parsed.record is not None:
        print(f"Recorded {parsed.record}", file=sys.stderr)
    return 0


def _simulate(parsed: argparse.Namespace) -> int:
    from unity_bridge.simulators.__main__ import main as simulate

    return simulate([parsed.env, *parsed.rest])


def _schema(parsed: argparse.Namespace) -> int:
    from trainer_service.config import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def _policies(folder: Path, device: str, seed: int) -> dict[str, Policy]:
    import torch

    from trainer_service.policy import Policy, checkpoints_of
    from trainer_service.training import choose_device

    torch.set_num_threads(1)  # a forward pass for a few agents is faster on one core than on two
    choose_device(device)
    return {
        name: Policy.load(path, device=device, seed=seed) for name, path in checkpoints_of(folder).items()
    }


def _run_options(path: Path) -> RunOptions:
    from trainer_service.config import load_run_options

    return load_run_options(path).options


def _recording(env: str, target: Path | None) -> list[str]:
    from unity_bridge.launcher import BUNDLED_SCHEMES

    if target is None:
        return []
    if env.partition(":")[0] not in BUNDLED_SCHEMES:
        raise UserError(
            f"--record: '{env}' is a program of its own; only bundled environments can be recorded"
        )
    if target.suffix.lower() != ".gif":
        raise UserError(f"--record: expected a .gif file, got '{target}'")
    return ["--record", str(target.absolute())]


def _progress() -> Callable[[int, int], None]:
    if not sys.stderr.isatty():
        return lambda done, wanted: None
    return lambda done, wanted: print(
        f"\r{done} of {wanted} episodes", end="\n" if done >= wanted else "", file=sys.stderr, flush=True
    )


def _print_scores(
    parsed: argparse.Namespace, policies: Mapping[str, Policy], scores: Mapping[str, Score]
) -> None:
    results = {name: score.to_json() for name, score in scores.items()}
    if parsed.json:
        step = max((policies[name].step for name in scores), default=0)
        print(json.dumps({"run_id": parsed.run_id, "step": step, "behaviors": results}))
        return
    for name, result in results.items():
        print(
            f"{name} (step {policies[name].step}): mean return {result['mean_return']:.3f} "
            f"± {result['std_return']:.3f} over {result['episodes']} episodes, "
            f"mean length {result['mean_length']:.1f}"
        )


def _overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are present, nested as in the file."""
    overrides: dict[str, Any] = {}
    for section, flags in _SECTION_OF_FLAG.items():
        present = {flag: given[flag] for flag in flags if flag in given}
        if present:
            overrides[section] = present
    for flag in ("debug", "deterministic"):
        if flag in given:
            overrides[flag] = given[flag]
    return overrides


def _tell_warnings(loaded: LoadedOptions) -> None:
    import logging

    for warning in loaded.warnings:
        logging.getLogger(__name__).warning("%s", warning)


def _say_where(options: RunOptions, folder: Path, behaviors: Sequence[str], interrupted: bool) -> None:
    if not behaviors:
        print("\nStopped before any simulator came; there is nothing to save.")
        return
    saved = options.checkpoint_settings
    location = "" if saved.results_dir == "results" else f" --results-dir={saved.results_dir}"
    print(f"\n{'Interrupted' if interrupted else 'Finished'}. Everything is in {folder}")
    for name in behaviors:
        print(f"  policy of {name}: {folder / name / 'checkpoint.pt'}")
    print(f"  curves: tensorboard --logdir {saved.results_dir}")
    print(f"  score:  mlagents-style evaluate {saved.run_id}{location}")
    if interrupted:
        print("  go on:  the same command with --resume")


def _complain(message: str) -> None:
    print(f"mlagents-style: error: {message}", file=sys.stderr)


def _note(message: str) -> None:
    print(f"[WARNING] {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """argparse that knows the nearest flag or command."""

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                known += list(action.choices)
        for word in message.replace("'", " ").replace("=", " ").split():
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
            if near and near[0] != word and word not in known:
                message += f" (did you mean '{near[0]}'?)"
                break
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mlagents-style",
        description="Trains agents that live in a simulator, over the ML-Agents protocol.",
    )
    parser.add_argument(
        "--version", action="version", version=f"trainer-service {trainer_service.__version__}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_learn(commands)
    _add_check(commands)
    _add_evaluate(commands)
    _add_simulate(commands)
    schema = commands.add_parser("schema", help="print the JSON Schema of the configuration, for editors")
    schema.set_defaults(command=_schema, parser=schema)
    return parser


def _add_learn(commands: Any) -> None:
    learn = commands.add_parser(
        "learn", help="train", argument_default=argparse.SUPPRESS,
        description="Trains the behaviors of a simulator. Flags win over the configuration file.",
    )  # fmt: skip
    learn.set_defaults(command=_learn, parser=learn)
    learn.add_argument("trainer_config_path", nargs="?", default=None, type=Path, metavar="CONFIG.yaml")
    learn.add_argument(
        "--env", dest="env_path", metavar="ENV",
        help="an executable, sim:NAME, gym:ID; without it simulators attach (Unity Editor: press Play)",
    )  # fmt: skip
    run = learn.add_argument_group("run")
    run.add_argument("--run-id", metavar="ID", help="names the results (default ppo)")
    run.add_argument("--resume", action="store_true", help="continue the run")
    run.add_argument("--force", action="store_true", help="overwrite an existing run")
    run.add_argument("--initialize-from", metavar="ID", help="start with the weights of another run")
    run.add_argument("--inference", action="store_true", help="act without learning; writes nothing")
    run.add_argument("--results-dir", metavar="DIR", help="where results go (default results)")
    run.add_argument("--deterministic", action="store_true", help="likeliest actions instead of drawn ones")
    run.add_argument("--seed", type=int, metavar="N", help="−1 chooses one")
    run.add_argument("--debug", action="store_true", help="log everything")
    run.add_argument("--torch-device", dest="device", metavar="DEVICE", help="cpu, cuda, cuda:0 …")
    simulators = learn.add_argument_group("simulators")
    simulators.add_argument("--num-envs", type=int, metavar="N", help="how many to start")
    simulators.add_argument("--num-areas", type=int, metavar="N", help="training areas in each")
    simulators.add_argument(
        "--base-port", type=int, metavar="PORT", help="first port; else the system chooses"
    )
    simulators.add_argument("--timeout-wait", type=int, metavar="SECONDS", help="patience with a simulator")
    simulators.add_argument("--max-lifetime-restarts", type=int, metavar="N")
    simulators.add_argument("--restarts-rate-limit-n", type=int, metavar="N")
    simulators.add_argument("--restarts-rate-limit-period-s", type=int, metavar="SECONDS")
    simulators.add_argument("--host", metavar="ADDRESS", help="where simulators attach (default 127.0.0.1)")
    simulators.add_argument("--port", type=int, metavar="PORT", help="the port for that (default 5004)")
    simulators.add_argument(
        "--env-args", nargs=argparse.REMAINDER, metavar="…", help="everything after it goes to the simulators"
    )
    engine = learn.add_argument_group("engine")
    for flag in ("--width", "--height", "--quality-level", "--target-frame-rate", "--capture-frame-rate"):
        engine.add_argument(flag, type=int, metavar="N")
    engine.add_argument("--time-scale", type=float, metavar="X")
    engine.add_argument("--no-graphics", action="store_true")
    engine.add_argument("--no-graphics-monitor", action="store_true", help="a window for the first one only")
    # Removed or deprecated in ML-Agents; old scripts still pass them.
    learn.add_argument("--load", dest="load_model", action="store_true", help=argparse.SUPPRESS)
    learn.add_argument("--train", dest="train_model", action="store_true", help=argparse.SUPPRESS)
    for flag in ("--torch", "--tensorflow"):
        learn.add_argument(flag, action="store_true", help=argparse.SUPPRESS)


def _add_check(commands: Any) -> None:
    check = commands.add_parser("check", help="validate configurations without running them")
    check.set_defaults(command=_check, parser=check)
    check.add_argument("files", nargs="+", type=Path, metavar="CONFIG.yaml")


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="play a frozen policy and report its returns")
    evaluate.set_defaults(command=_evaluate, parser=evaluate)
    evaluate.add_argument("run_id", metavar="RUN_ID")
    evaluate.add_argument("--env", metavar="ENV", help="where to play (default: what the run was trained on)")
    evaluate.add_argument("--episodes", type=int, default=100, metavar="N", help="per behavior (default 100)")
    evaluate.add_argument(
        "--seed", type=int, default=20_000, metavar="N", help="of the simulator and the draws"
    )
    evaluate.add_argument("--stochastic", action="store_true", help="draw actions instead of the likeliest")
    evaluate.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    evaluate.add_argument("--record", type=Path, metavar="FILE.gif", help="record bundled environments")
    evaluate.add_argument("--results-dir", default="results", metavar="DIR")
    evaluate.add_argument("--torch-device", default="cpu", metavar="DEVICE")
    evaluate.add_argument("--env-args", nargs=argparse.REMAINDER, metavar="…", help="for the simulator")


def _add_simulate(commands: Any) -> None:
    simulate = commands.add_parser(
        "simulate", help="run a bundled simulator by hand", add_help=False,
        description="Attaches a bundled simulator to a running trainer.",
    )  # fmt: skip
    simulate.set_defaults(command=_simulate, parser=simulate)
    simulate.add_argument("env", metavar="ENV", help="sim:NAME, gym:ID")
    simulate.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="…", help="see: simulate sim:3dball --help"
    )


if __name__ == "__main__":
    sys.exit(main())
