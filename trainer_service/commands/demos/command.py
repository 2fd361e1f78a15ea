"""The commands ``record-demo``, ``demo-info``, ``demo-convert`` and ``clone``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from trainer_service.commands.common import flags
from trainer_service.commands.common.command import Flag, FlagsOf, InGroup, Settings
from trainer_service.commands.common.output import CommandResult, note, progress_printer
from trainer_service.commands.demos.clone import clone
from trainer_service.commands.demos.cloning import demonstrated_behavior
from trainer_service.commands.demos.info import read_contents, to_json, to_text
from trainer_service.commands.demos.record import Recording, check_target, record
from trainer_service.commands.play.flags import playing_of, stops_play
from trainer_service.commands.play.person import KEYBOARD, record_person
from trainer_service.config import PlayerName
from trainer_service.config.players import EXPERT
from trainer_service.errors import Interrupted, UserError
from trainer_service.running.evaluation.players import actors_of
from trainer_service.running.interop.minari_datasets import (
    PREFIX,
    dataset_to_recording,
    recordings_to_dataset,
)
from trainer_service.running.policy import by_behavior
from trainer_service.running.runs.folder import RunFolder
from unity_bridge.demonstrations import open_demonstrations

HEURISTIC = "heuristic"
"""The name of the scene's own expert as the policy of ``record-demo``."""

_PAGE = InGroup("the page of --policy keyboard")


def record_demo(
    env: Annotated[str, Flag("where to play: an executable, sim:NAME, gym:ID", "ENV")],
    *,
    policy: Annotated[str, Flag(
        "the demonstrator: a run, the scene's own expert, or you on a local page", "RUN_ID|heuristic|keyboard")],
    port: Annotated[flags.PagePort, _PAGE] = 0,
    browser: Annotated[flags.Browser, _PAGE] = True,
    episodes: Annotated[int, Flag("the first N that start (default 10)", "N", at_least=1)] = 10,
    output: Annotated[Path, Flag("what to write", "FILE.demo", names="-o --output")],
    behavior: Annotated[str | None, Flag("which, if there are several", "NAME")] = None,
    seed: flags.Seed = 0,
    force: Annotated[bool, Flag("replace a file that exists")] = False,
    **how: Annotated[Any, FlagsOf(playing_of, but=("record", "record_episodes", "record_seconds"))],
) -> CommandResult:  # fmt: skip
    """Records whole episodes of an expert or a trained policy in a .demo file."""
    check_target(output, force=force)
    who = _demonstrator(policy, how["results_dir"], deterministic=how["deterministic"])
    recording = Recording(output, episodes=episodes, behavior=behavior)
    with stops_play() as check_stop:
        # Not those that the run was trained with: a recording is of the environment as the flags say it.
        how |= {"env_args": how["env_args"] or (), "episodes": episodes, "seed": seed, **who}
        play = playing_of(env, progress=progress_printer(), check_stop=check_stop, **how)
        with play as playing, recording:
            if policy == KEYBOARD:
                record_person(playing, partial(record, recording=recording), port=port, browser=browser)
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
        "file": str(output),
        "behavior": recording.behavior,
        "episodes": len(recording.returns),
        "steps": recording.steps,
        "returns": recording.returns,
        "cut_episodes": recording.num_cut,
        "complete": recording.complete,
    }
    return CommandResult(outcome, [f"{_summary(recording)} in {output}"])


def demo_info(
    paths: Annotated[Sequence[Path], Flag("a recording, or a folder of them", "FILE.demo")],
) -> CommandResult:  # fmt: skip
    """Prints what is inside recorded demonstrations."""
    found = [read_contents(file) for path in paths for file in open_demonstrations(path)]
    return CommandResult({"files": [to_json(contents) for contents in found]}, map(to_text, found))


def demo_convert(
    source: Annotated[str, Flag("minari:NAME, or a .demo file or a folder of them", "FROM")],
    target: Annotated[str, Flag("the other one: FILE.demo, or minari:NAME", "TO")],
    *,
    behavior: Annotated[str | None, Flag(
        "the behavior of the recording (default: the id of the data set's environment, or the data set's name)", "NAME"
        )] = None,
    force: Annotated[bool, Flag("replace a recording that exists")] = False,
) -> CommandResult:  # fmt: skip
    """Converts between recordings (.demo) and data sets of Minari on this machine."""
    if source.startswith(PREFIX) == target.startswith(PREFIX):
        raise UserError(f"expected one of FROM and TO to be {PREFIX}NAME, got '{source}' and '{target}'")
    if behavior and not source.startswith(PREFIX):
        raise UserError("--behavior: not allowed, as recordings name their behavior")
    if source.startswith(PREFIX):
        check_target(Path(target), force=force)
        name, episodes, steps = dataset_to_recording(source.removeprefix(PREFIX), Path(target), behavior)
    else:
        name, _ = demonstrated_behavior(Path(source))
        files = open_demonstrations(Path(source))
        episodes, steps = recordings_to_dataset(files, target.removeprefix(PREFIX))
    outcome = {"target": target, "behavior": name, "episodes": episodes, "steps": steps}
    return CommandResult(outcome, [f"Converted {episodes} episodes of {name}: {steps:,} steps, in {target}"])


def clone_demo(
    config: flags.Config = None,
    *,
    demo: Annotated[str, Flag("a recording (.demo), or a folder of them", "PATH")],
    epochs: Annotated[int | None, Flag("passes over the demonstrations (default 100)", "N", either="length")] = None,
    max_steps: Annotated[int | None, Flag(
        "demonstrated steps to learn from, in whole passes", "N", either="length")] = None,
    **settings: Annotated[Any, Settings("run_id", "force", "results_dir", "seed", "device")],
) -> CommandResult:  # fmt: skip
    """Makes a run by behavioral cloning of demonstrations. Networks and trainer type are those of the behavior in the
    configuration; without one, those of PPO's built-in settings.
    """
    outcome = clone(demo, config, epochs=epochs, max_steps=max_steps, **settings)
    run_id, results_dir = outcome.folder.name, outcome.folder.parent
    location = "" if str(results_dir) == "results" else f" --results-dir={shlex.quote(str(results_dir))}"
    run = f"{shlex.quote(run_id)}{location}"
    lines = [
        f"Everything is in {outcome.folder}",
        f"  score:  mlagents-style evaluate {run} --env ENV",
        f"  learn:  mlagents-style learn --initialize-from {run} --env ENV --run-id NEW",
    ]
    result = {"folder": str(outcome.folder), "steps": outcome.steps, "interrupted": outcome.interrupted}
    return CommandResult(result, lines)


def _demonstrator(policy: str, results_dir: Path, *, deterministic: bool) -> dict[str, Any]:
    """The fields of ``Playing`` that say who is recorded. Raises UserError where there is no such run."""
    if policy not in (HEURISTIC, KEYBOARD):
        return {"run": RunFolder.read(results_dir, policy)}
    if not deterministic:
        why = "an expert draws nothing" if policy == HEURISTIC else "not allowed for the keyboard"
        raise UserError(f"--stochastic: {why}; it is for the policy of a run")
    return {"players": (PlayerName(EXPERT),) if policy == HEURISTIC else ()}


def _summary(recorded: Recording) -> str:
    count = len(recorded.returns)
    return (
        f"Recorded {count} episode{'s' if count > 1 else ''} of {recorded.behavior}: {recorded.steps:,} steps, "
        f"mean return {sum(recorded.returns) / count:.3f},"
    )
