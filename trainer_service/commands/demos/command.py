"""The commands ``record-demo``, ``demo-info``, ``demo-convert`` and ``clone``."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.output import note, progress_printer, say_result
from trainer_service.commands.play.flags import playing_of
from trainer_service.commands.play.person import KEYBOARD, record_person
from trainer_service.config import PlayerName
from trainer_service.config.players import EXPERT
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.commands.demos.record import Recording

HEURISTIC = "heuristic"
"""The name of the scene's own expert as the policy of ``record-demo``."""

# What is heavy is imported where it is needed: torch takes seconds.


class Interrupted(UserError):
    """Raised on Ctrl-C before there was anything to keep."""

    exit_code = 130


def record_demo(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style record-demo``. Returns the exit code.

    Raises:
        UserError: something in the flags cannot be done, or it was interrupted before an episode was complete.
        BridgeError: a simulator failed, or the file cannot be written.
    """
    from trainer_service.commands.demos.record import Recording, check_target, record
    from trainer_service.running.evaluation.loop import PlayStopped
    from trainer_service.running.evaluation.players import actors_of
    from trainer_service.running.policy import by_behavior
    from trainer_service.running.training.stop_signals import StopSignals

    check_target(parsed.output, force=parsed.force)
    who = _demonstrator(parsed)
    recording = Recording(parsed.output, episodes=parsed.episodes, behavior=parsed.behavior)
    with StopSignals() as signals:

        def check_stop() -> None:
            if signals.requested:
                raise PlayStopped

        progress = progress_printer()
        with playing_of(parsed, **who, progress=progress, check_stop=check_stop) as playing, recording:
            if parsed.policy == KEYBOARD:
                record_person(playing, parsed, partial(record, recording=recording))
            else:
                with playing.loop(playing.simulator()) as loop:
                    (player,) = playing.load()
                    apart = replace(player, policies=by_behavior(player.policies))
                    record(loop, actors_of(apart, deterministic=playing.deterministic), recording)
    if not recording.returns:
        raise Interrupted("interrupted before any episode was complete; nothing was written")
    if not recording.complete:
        note("Interrupted: the episodes that were complete are kept.")
    if recording.num_cut:
        note(f"{recording.num_cut} of {len(recording.returns)} episodes were cut at the limit of steps.")
    outcome = {
        "file": str(parsed.output),
        "behavior": recording.behavior,
        "episodes": len(recording.returns),
        "steps": recording.steps,
        "returns": recording.returns,
        "cut_episodes": recording.num_cut,
        "complete": recording.complete,
    }
    say_result(parsed, outcome, [f"{_summary(recording)} in {parsed.output}"])
    return 0


def demo_info(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style demo-info``. Returns the exit code. Raises DemonstrationError: a file cannot be read."""
    from trainer_service.commands.demos.info import read_contents, to_json, to_text
    from unity_bridge.demonstrations import open_demonstrations

    found = [read_contents(file) for path in parsed.paths for file in open_demonstrations(path)]
    say_result(parsed, {"files": [to_json(contents) for contents in found]}, map(to_text, found))
    return 0


def demo_convert(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style demo-convert``. Returns the exit code.

    Raises:
        UserError: not one of the two is a data set, it cannot be converted, or Minari is missing.
        DemonstrationError: a recording cannot be read or written.
    """
    from trainer_service.commands.demos.cloning import demonstrated_behavior
    from trainer_service.commands.demos.record import check_target
    from trainer_service.running.interop.minari_datasets import (
        PREFIX,
        dataset_to_recording,
        recordings_to_dataset,
    )
    from unity_bridge.demonstrations import open_demonstrations

    source, target = parsed.source, parsed.target
    if source.startswith(PREFIX) == target.startswith(PREFIX):
        raise UserError(f"expected one of FROM and TO to be {PREFIX}NAME, got '{source}' and '{target}'")
    if parsed.behavior and not source.startswith(PREFIX):
        raise UserError("--behavior: of no use, as recordings name their behavior")
    if source.startswith(PREFIX):
        check_target(Path(target), force=parsed.force)
        name, episodes, steps = dataset_to_recording(
            source.removeprefix(PREFIX), Path(target), parsed.behavior
        )
    else:
        name, _ = demonstrated_behavior(Path(source))
        files = open_demonstrations(Path(source))
        episodes, steps = recordings_to_dataset(files, target.removeprefix(PREFIX))
    outcome = {"target": target, "behavior": name, "episodes": episodes, "steps": steps}
    say_result(parsed, outcome, [f"Converted {episodes} episodes of {name}: {steps:,} steps, in {target}"])
    return 0


def clone_demo(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style clone``. Returns the exit code.

    Raises:
        UserError: something in the flags, the configuration or the run's folder cannot be used.
        DemonstrationError: a recording cannot be read.
    """
    from trainer_service.commands.demos.clone import clone

    given = {key: value for key, value in vars(parsed).items() if key not in ("command", "parser", "json")}
    with redirect_stdout(sys.stderr) if parsed.json else nullcontext():  # the log, which is no result
        outcome = clone(**given)
    run_id, results_dir = outcome.folder.name, outcome.folder.parent
    location = "" if str(results_dir) == "results" else f" --results-dir={shlex.quote(str(results_dir))}"
    run = f"{shlex.quote(run_id)}{location}"
    lines = [
        f"Everything is in {outcome.folder}",
        f"  score:  mlagents-style evaluate {run} --env ENV",
        f"  learn:  mlagents-style learn --initialize-from {run} --env ENV --run-id NEW",
    ]
    result = {"folder": str(outcome.folder), "steps": outcome.steps, "interrupted": outcome.interrupted}
    say_result(parsed, result, lines)
    return 0


def _demonstrator(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``Playing`` that say who is recorded, and where. Raises UserError where there is no such run."""
    from trainer_service.commands.common.environments import environment_for
    from trainer_service.running.runs.folder import RunFolder

    # Not those that the run was trained with: a recording is of the environment as the flags say it.
    environment = environment_for(parsed.env, env_args=parsed.env_args or ())
    if parsed.policy not in (HEURISTIC, KEYBOARD):
        return {"environment": environment, "run": RunFolder.read(parsed.results_dir, parsed.policy)}
    if parsed.stochastic:
        why = "an expert draws nothing" if parsed.policy == HEURISTIC else "of no use for the keyboard"
        raise UserError(f"--stochastic: {why}; it is for the policy of a run")
    return {
        "environment": environment,
        "players": (PlayerName(EXPERT),) if parsed.policy == HEURISTIC else (),
    }


def _summary(recorded: Recording) -> str:
    count = len(recorded.returns)
    return (
        f"Recorded {count} episode{'s' if count > 1 else ''} of {recorded.behavior}: {recorded.steps:,} steps, "
        f"mean return {sum(recorded.returns) / count:.3f},"
    )
