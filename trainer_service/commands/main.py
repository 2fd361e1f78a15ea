"""The command line: ``mlagents-style COMMAND …``."""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.output import (
    note,
    print_error,
    print_results,
    print_warning,
    result_lines,
    say,
    say_json,
    say_result,
    silence_output,
)
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import ATTACH_PORT, nested, put
from trainer_service.commands.parser import build_parser
from trainer_service.errors import UserError
from unity_bridge.process_guard import collect_garbage_seldom
from unity_bridge.unblocked_output import open_standard_streams, unblocked_standard_streams
from unity_bridge.untrusted_text import quoted

if TYPE_CHECKING:
    from trainer_service.config import RunOptions
    from trainer_service.running.callbacks import Callback

# Everything heavy is imported in the command that needs it, so that each answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0 success, 1 a simulator failed, 2 something that the user can mend."""
    open_standard_streams()
    _limit_spinning()
    # pygame would take SIGTERM for the close button of a window.
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
    collect_garbage_seldom()
    atexit.register(gc.freeze)  # torch is a second's work to collect, for a process that ends anyway
    parsed, unknown = build_parser().parse_known_args(arguments)
    if parsed.command == "simulate":  # its own parser reads all that follows
        parsed.rest, unknown = [*unknown, *parsed.rest], []
    if unknown:
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if getattr(parsed, "no_plugins", False):
        from unity_bridge.plugins import SWITCH

        os.environ[SWITCH] = "off"  # simulators and workers, which are processes of their own, inherit it
    # A result waits for its reader, as everywhere; a run waits for nobody.
    with unblocked_standard_streams() if parsed.command == "learn" else nullcontext():
        return _run(parsed)


def _run(parsed: argparse.Namespace) -> int:
    from unity_bridge.errors import (
        BridgeError,
        DeclarationError,
        DemonstrationError,
        LaunchError,
        PluginError,
        PortInUse,
        RemoteError,
    )

    try:
        return _COMMANDS[parsed.command](parsed)
    except UserError as error:
        print_error(str(error))
        return error.exit_code
    except (DeclarationError, LaunchError, PortInUse, DemonstrationError, PluginError, RemoteError) as error:
        print_error(str(error))
        return 2
    except BridgeError as error:
        print_error(str(error))
        return 1
    except BrokenPipeError:
        silence_output()  # the reader of our output is gone (`… | head`)
        return 1
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        print_error(f"{error.strerror}: {quoted(str(error.filename))}")
        return 2
    except KeyboardInterrupt:
        print_error("interrupted")
        return 130


def _limit_spinning() -> None:
    """Lets torch's threads wait for each other by spinning, but not for long. Counts when torch is loaded later.

    They wait in vain where another run, or a simulator, has a core that they count on: without a limit two threads
    then take several times longer than one. If they never spin, the second one gains nothing on a free machine.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _learn(parsed: argparse.Namespace) -> int:
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
        from trainer_service.commands.train.train import train
        from trainer_service.running.metrics.console import Console

        for flag in ("torch", "tensorflow"):
            if flag in given:
                print_warning(f"The command line argument --{flag} was removed.")
        loaded = read_run(given.get("trainer_config_path"), _overrides(given))
        callbacks = _callbacks(given.get("callbacks", []))
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
                **{name: given[name] for name in ATTACH_PORT if name in given},
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


def _sweep(parsed: argparse.Namespace) -> int:
    from trainer_service.commands.search.command import search_hyperparameters

    return search_hyperparameters(parsed, _overrides)


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
    from trainer_service.running.collection.attach_port import AttachPort

    attach_port = AttachPort(**{name: given[name] for name in ATTACH_PORT if name in given})
    return without_configuration(
        options, _overrides(given), wanted=given.get("suggest"), attach_port=attach_port
    )


def _callbacks(names: Sequence[str]) -> list[Callback]:
    if not names:
        return []
    from trainer_service.running.callbacks import load_callback

    return [load_callback(name) for name in names]


def _check(parsed: argparse.Namespace) -> int:
    from trainer_service.config import check_files

    checks = check_files(parsed.files)
    ok = all(check.ok for check in checks)
    if parsed.json:
        say_json({"ok": ok, "files": [check.to_json() for check in checks]})
        return 0 if ok else 2
    for check in checks:
        # One line per file on standard output, so that they can be counted; details go to standard error.
        say(check)
        for detail in check.details:
            note(f"  {detail}")
    return 0 if ok else 2


def _report(parsed: argparse.Namespace) -> int:
    from trainer_service.commands.common.run_record import find_run
    from trainer_service.commands.report.command import report_on
    from trainer_service.running.metrics.console import Console

    path = find_run(parsed.run, parsed.results_dir)
    with Console(tty=False, stream=sys.stderr):
        output = report_on(path, parsed.to)
    say_result(parsed, {"run": str(path), "file": str(output)}, [f"Report on '{path}' in {output}"])
    return 0


def _simulate(parsed: argparse.Namespace) -> int:
    from unity_bridge.simulators.__main__ import main as simulate

    return simulate(parsed.rest)


def _export(parsed: argparse.Namespace) -> int:
    from trainer_service.running.interop.onnx_export import export_run
    from trainer_service.running.runs.folder import RunFolder

    folder = RunFolder.read(parsed.results_dir, parsed.run_id)
    written = export_run(folder, step=parsed.step, checkpoint=parsed.checkpoint, output=parsed.output)
    models = [
        {"behavior": policy.behavior, "step": policy.step, "file": str(path)}
        for path, policy in written.items()
    ]
    lines = (f"Exported {each['behavior']} (step {each['step']}) to {each['file']}" for each in models)
    say_result(parsed, {"models": models}, lines)
    return 0


def _import_checkpoint(parsed: argparse.Namespace) -> int:
    from trainer_service.running.interop.mlagents_results import import_results
    from trainer_service.running.metrics.console import Console

    with Console(tty=False, stream=sys.stderr):
        imported = import_results(parsed.results_folder, parsed.run_id, results_dir=parsed.results_dir)
    say_result(parsed, imported.to_json(), imported.lines())
    return 0


def _schema(parsed: argparse.Namespace) -> int:
    from trainer_service.config import json_schema

    say_json(json_schema(plugins=True), indent=2)
    return 0


def _alias(parsed: argparse.Namespace) -> int:
    from trainer_service.commands.train.alias import switch_alias

    return switch_alias(on=not parsed.remove)


def _doctor(parsed: argparse.Namespace) -> int:
    from trainer_service.commands.doctor import Setup, run_checks

    given = vars(parsed)
    config: Path | None = given["trainer_config_path"]
    options = _options_for_doctor(config, _overrides(given))
    setup = Setup(
        results_dir=Path(options.checkpoint_settings.results_dir),
        port=given.get("port", 5004),
        device=options.torch_settings.device,
        config=config,
        env=options.env_settings.env_path,
        options=options,
        join=given.get("join"),
        address=given.get("address"),
    )
    findings = []
    for finding in run_checks(setup):
        findings.append(finding)
        if not parsed.json:
            say(finding)
    broken = [finding.subject for finding in findings if finding.verdict == "fail"]
    if parsed.json:
        say_json({"ok": not broken, "checks": [finding.to_json() for finding in findings]})
    elif broken:
        say(f"To mend: {', '.join(dict.fromkeys(broken))}")
    return 2 if broken else 0


def _options_for_doctor(config: Path | None, overrides: Mapping[str, Any]) -> RunOptions:
    """Options of the file and the flags; of the flags alone if the file has mistakes, which are reported elsewhere."""
    from trainer_service.config import load_run_options
    from trainer_service.errors import ConfigError

    try:
        return load_run_options(config, overrides).options
    except ConfigError:
        if config is None:
            raise
        return load_run_options(None, overrides).options


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
    if given.get("settings"):
        from trainer_service.config.reading.settings import read_setting

        for text in given["settings"]:
            put(overrides, *read_setting(text))
    return overrides


def _elsewhere(name: str) -> Callable[[argparse.Namespace], int]:
    """A command in a module of its own, which is loaded when it runs."""
    return lambda parsed: int(pkgutil.resolve_name(f"trainer_service.commands.{name}")(parsed))


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "learn": _learn,
    "suggest": _elsewhere("suggest.configs:print_suggestion"),
    "check": _check,
    "configs": _elsewhere("suggest.configs:list_or_copy"),
    "evaluate": _elsewhere("play.command:evaluate"),
    "compare": _elsewhere("compare.command:compare_runs"),
    "report": _report,
    "status": _elsewhere("status.command:print_status"),
    "play": _elsewhere("play.command:play"),
    "watch": _elsewhere("watch.command:watch"),
    "demo": _elsewhere("watch.command:demo"),
    "record-demo": _elsewhere("demos.command:record_demo"),
    "relay": _elsewhere("relay:relay_simulators"),
    "demo-info": _elsewhere("demos.command:demo_info"),
    "demo-convert": _elsewhere("demos.command:demo_convert"),
    "clone": _elsewhere("demos.command:clone_demo"),
    "simulate": _simulate,
    "sweep": _sweep,
    "export": _export,
    "import-checkpoint": _import_checkpoint,
    "push": _elsewhere("share.command:push"),
    "load": _elsewhere("share.command:load"),
    "schema": _schema,
    "doctor": _doctor,
    "alias": _alias,
}
"""The function of each command. Its flags are in ``parser.py``."""


if __name__ == "__main__":
    sys.exit(main())
