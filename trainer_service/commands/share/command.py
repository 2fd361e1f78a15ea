"""The commands ``export``, ``import-checkpoint``, ``push`` and ``load``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.flags import (
    EVALUATION_SEED,
    RESULTS,
    EnvArgs,
    MaxEpisodeSteps,
    ResultsDir,
)
from trainer_service.commands.common.output import CommandResult, note, progress_printer
from trainer_service.commands.share.share import load_from_hub, push_to_hub
from trainer_service.errors import suggested_command
from trainer_service.running.interop.bundle import export_bundles
from trainer_service.running.interop.mlagents_results import import_results
from trainer_service.running.interop.onnx_export import export_run
from trainer_service.running.metrics.console import Console
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import run_path
from unity_bridge.untrusted_text import quoted

if TYPE_CHECKING:
    from trainer_service.commands.share.downloaded_run import LoadedRun

_MOST_NAMED = 5
"""Limit of the files that ``load`` names as left out."""


def export_models(
    run_id: Annotated[str, Flag("a run id, or the folder of a run", "RUN_ID")],
    *,
    step: Annotated[int | None, Flag("the checkpoints of this step, not the newest", "N", either="which")] = None,
    checkpoint: Annotated[Path | None, Flag("this checkpoint", "FILE", either="which")] = None,
    output: Annotated[Path | None, Flag(
        "a file.onnx or a folder (default: the run's)", "PATH", either="place")] = None,
    bundle: Annotated[str | None, Flag(
        "each model with a description and runners for programs without this package, in DIR (default: bundle in the "
        "run's folder)", "DIR", nargs="?", const="", either="place")] = None,
    results_dir: ResultsDir = RESULTS,
) -> CommandResult:  # fmt: skip
    """Writes the ONNX models of a run again, from its checkpoints."""
    folder = RunFolder.read(results_dir, run_id)
    if bundle is None:
        written = export_run(folder, step=step, checkpoint=checkpoint, output=output)
    else:
        target = Path(bundle) if bundle else None
        written = export_bundles(folder, step=step, checkpoint=checkpoint, target=target)
    models = [
        {"behavior": policy.behavior, "step": policy.step, "file": str(path)}
        for path, policy in written.items()
    ]
    lines = (f"Exported {each['behavior']} (step {each['step']}) to {each['file']}" for each in models)
    return CommandResult({"models": models}, lines)


def import_checkpoint(
    results_folder: Annotated[Path, Flag("results/ID of ML-Agents", "RESULTS_FOLDER")],
    *,
    run_id: Annotated[str, Flag("the id of the new run", "ID")],
    results_dir: Annotated[Path, Flag("where it goes", "DIR")] = RESULTS,
) -> CommandResult:  # fmt: skip
    """Makes a run from the results of mlagents-learn 1.1.0, to evaluate, export or resume."""
    with Console(tty=False, stream=sys.stderr):
        imported = import_results(results_folder, run_id, results_dir=results_dir)
    return CommandResult(imported.to_json(), imported.lines())


def push(
    run: Annotated[str | None, Flag("a run id, or the folder of a run", "RUN", either="which!")] = None,
    *,
    run_id: Annotated[str | None, Flag("the same, as mlagents-push-to-hf has it", "ID", either="which!")] = None,
    local_dir: Annotated[Path | None, Flag("the folder of the run, with --run-id", "DIR")] = None,
    repo_id: Annotated[str, Flag("made if need be", "USER/NAME", names="--repo --repo-id")],
    private: Annotated[bool, Flag("make a new repository private")] = False,
    commit_message: Annotated[str, Flag("of the upload (default Push to Hub)", "TEXT")] = "Push to Hub",
    to: Annotated[Path | None, Flag("write the files there, and upload nothing", "DIR")] = None,
    checkpoint: Annotated[str, Flag("last, best or a step (default last)", "WHICH")] = "last",
    with_state: Annotated[bool, Flag("share optimizers, too, for an exact --resume")] = False,
    episodes: Annotated[int, Flag(
        "of the evaluation (default 100)", "N", at_least=0), Flag("share no scores", names="--no-evaluation",
        const=0)] = 100,
    max_episode_steps: MaxEpisodeSteps = None,
    seed: Annotated[int, Flag("of the evaluation", "N")] = EVALUATION_SEED,
    film: Annotated[bool, Flag("record the evaluation: replay.mp4")] = False,
    env: Annotated[str | None, Flag("where to evaluate (default: where it was trained)", "ENV")] = None,
    results_dir: ResultsDir = RESULTS,
    env_args: EnvArgs = None,
) -> CommandResult:  # fmt: skip
    """Evaluates a run and uploads weights, models, configuration, metrics and a card to the Hugging Face Hub: no paths,
    host names or arguments of simulators. Takes the flags of mlagents-push-to-hf, too.
    """
    with Console(tty=False, stream=sys.stderr):
        shared = push_to_hub(
            local_dir or run_path(run or run_id or "", results_dir), repo_id, env=env, env_args=env_args,
            episodes=episodes, max_episode_steps=max_episode_steps, checkpoint=checkpoint, seed=seed, film=film,
            with_state=with_state, private=private, commit_message=commit_message, to=to,
            progress=progress_printer(),
        )  # fmt: skip
    lines = [*(f"  {name}" for name in shared.files), f"{len(shared.files)} files are in {shared.address}"]
    return CommandResult({"address": shared.address, "files": list(shared.files)}, lines)


def load(
    repo: Annotated[str | None, Flag("the repository", "USER/NAME", either="which!")] = None,
    *,
    repo_id: Annotated[str | None, Flag(
        "the same, as mlagents-load-from-hf has it", "USER/NAME", either="which!")] = None,
    run_id: Annotated[str | None, Flag("of the run that is made (default: NAME)", "ID")] = None,
    revision: Annotated[str | None, Flag("a branch, tag or commit (default: the newest)", "REVISION")] = None,
    results_dir: Annotated[Path, Flag(
        "where the run goes (default results)", "DIR", names="--results-dir --local-dir")] = RESULTS,
) -> CommandResult:  # fmt: skip
    """Makes a run of a repository on the Hugging Face Hub, of this trainer or of ML-Agents. Executes nothing of it.
    Takes the flags of mlagents-load-from-hf, too.
    """
    repository = repo or repo_id or ""
    with Console(tty=False, stream=sys.stderr):
        loaded = load_from_hub(repository, run_id=run_id, revision=revision, results_dir=results_dir)
    result = {"folder": str(loaded.folder), "commit": loaded.commit, "left_out": list(loaded.left_out)}
    return CommandResult(result, _loaded_lines(repository, loaded, results_dir))


def _loaded_lines(repository: str, loaded: LoadedRun, results_dir: Path) -> Iterator[str]:
    if loaded.left_out:
        named = "; ".join(quoted(name) for name in loaded.left_out[:_MOST_NAMED])
        more = len(loaded.left_out) - _MOST_NAMED
        note(f"Not taken over: {named}{f' and {more} more' if more > 0 else ''}")
    location = [] if str(results_dir) == "results" else ["--results-dir", str(results_dir)]
    yield f"Loaded {repository} (commit {loaded.commit[:10]}) into {loaded.folder}"
    yield f"  score:  {suggested_command('evaluate', loaded.folder.name, *location)}"
