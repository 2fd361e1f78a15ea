"""The command line: ``mlagents-style COMMAND …``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.arguments import build_parser
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.config import LoadedOptions, RunOptions
    from trainer_service.evaluation import Score
    from trainer_service.policy import Policy

# Everything heavy is imported in the command that needs it, so that each answers at once.

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

    _wait_briefly()
    parsed, unknown = build_parser().parse_known_args(arguments)
    if unknown:
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return _COMMANDS[parsed.command](parsed)
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


def _wait_briefly() -> None:
    """Lets torch's threads wait for each other by spinning, but not for long. Counts when torch is loaded later.

    They wait in vain where another run, or a simulator, has a core that they count on: without a limit two threads
    then take several times longer than one. If they never spin, the second one gains nothing on a free machine.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


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
    from trainer_service.training import curriculum_reached, engine_settings
    from unity_bridge.launcher import resolve_program
    from unity_bridge.server import Bridge, BridgeSettings
    from unity_bridge.side_channels import parameter_records

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
        parameters = parameter_records(curriculum_reached(trained_with, folder, parsed.seed).messages())
        settings = BridgeSettings(
            seed=parsed.seed,
            greeting=lambda simulator: parameters,
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


def _export(parsed: argparse.Namespace) -> int:
    from trainer_service.export import export_run
    from trainer_service.run import RunFolder

    folder = RunFolder.read(parsed.results_dir, parsed.run_id)
    written = export_run(folder, step=parsed.step, checkpoint=parsed.checkpoint, output=parsed.output)
    for path, policy in written.items():
        print(f"Exported {policy.behavior} (step {policy.step}) to {path}")
    return 0


def _import_checkpoint(parsed: argparse.Namespace) -> int:
    from trainer_service.console import Console
    from trainer_service.importing import import_results

    with Console(tty=False, stream=sys.stderr):
        imported = import_results(parsed.results_folder, parsed.run_id, results_dir=parsed.results_dir)
    for name, conversion in imported.conversions.items():
        print(f"Imported {name} (step {conversion.checkpoint.step}) into {imported.folder}")
        for part in conversion.left_behind:
            print(f"  not taken over: {part}")
    return 0


def _schema(parsed: argparse.Namespace) -> int:
    from trainer_service.config import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def _doctor(parsed: argparse.Namespace) -> int:
    from trainer_service.doctor import Patient, examine

    given = vars(parsed)
    config: Path | None = given["trainer_config_path"]
    options = _readable_options(config, _overrides(given))
    patient = Patient(
        results_dir=Path(options.checkpoint_settings.results_dir),
        port=given.get("port", 5004),
        device=options.torch_settings.device,
        config=config,
        env=options.env_settings.env_path,
        options=options,
    )
    findings = []
    for finding in examine(patient):
        findings.append(finding)
        if not parsed.json:
            print(finding, flush=True)
    broken = [finding.subject for finding in findings if finding.verdict == "fail"]
    if parsed.json:
        print(json.dumps({"ok": not broken, "checks": [finding.to_json() for finding in findings]}))
    elif broken:
        print(f"To mend: {', '.join(dict.fromkeys(broken))}")
    return 2 if broken else 0


def _readable_options(config: Path | None, overrides: Mapping[str, Any]) -> RunOptions:
    """What the file and the flags say; only the flags if the file has mistakes, which are told elsewhere."""
    from trainer_service.config import load_run_options
    from trainer_service.errors import ConfigError

    try:
        return load_run_options(config, overrides).options
    except ConfigError:
        if config is None:
            raise
        return load_run_options(None, overrides).options


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
        if (model := folder / f"{name}.onnx").exists():
            print(f"  model for Unity: {model}")
    print(f"  curves: tensorboard --logdir {saved.results_dir}")
    print(f"  score:  mlagents-style evaluate {saved.run_id}{location}")
    if interrupted:
        print("  go on:  the same command with --resume")


def _complain(message: str) -> None:
    print(f"mlagents-style: error: {message}", file=sys.stderr)


def _note(message: str) -> None:
    print(f"[WARNING] {message}", file=sys.stderr)


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "learn": _learn,
    "check": _check,
    "evaluate": _evaluate,
    "simulate": _simulate,
    "export": _export,
    "import-checkpoint": _import_checkpoint,
    "schema": _schema,
    "doctor": _doctor,
}
"""What each command does. Its flags are in ``arguments.py``."""


if __name__ == "__main__":
    sys.exit(main())
