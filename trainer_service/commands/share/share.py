"""Runs shared on the Hugging Face Hub, and runs that others shared there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer_service.commands.common.aggregates import CONFIDENCE, estimate
from trainer_service.commands.common.command import require_at_least
from trainer_service.commands.common.environments import ChosenEnvironment, EnvironmentLike, environment_for
from trainer_service.commands.common.flags import EVALUATION_SEED
from trainer_service.commands.common.trained_run import folder_of, options_of
from trainer_service.commands.play.films import FilmOptions, filming
from trainer_service.commands.play.playing import Playing, play_episodes
from trainer_service.commands.share.card import model_card
from trainer_service.commands.share.downloaded_run import LoadedRun, make_run, wanted_files
from trainer_service.commands.share.package import CARD, FILM, write_package
from trainer_service.commands.share.package import RESULTS as RESULTS_FILE
from trainer_service.commands.share.repository import (
    create_repository,
    download,
    find_snapshot,
    require_repo_id,
    upload,
)
from trainer_service.config import load_run_options
from trainer_service.config.names import validate_run_id
from trainer_service.errors import UserError
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.layout import RESULTS, RunLayout

if TYPE_CHECKING:
    from trainer_service.learning.rollout.episode_scores import Score
    from trainer_service.running.runs.folder import RunFolder


@dataclass(frozen=True, slots=True)
class SharedRun:
    """The files that were shared, and where they are now."""

    address: str
    """The repository's address, or the folder that the files were written to."""
    files: tuple[str, ...]
    """Names of the files, relative to the repository."""


def push_to_hub(
    run: str | os.PathLike[str],
    repo_id: str,
    *,
    env: EnvironmentLike | None = None,
    env_args: Sequence[str] | None = None,
    episodes: int = 100,
    max_episode_steps: int | None = None,
    checkpoint: str = "last",
    seed: int = EVALUATION_SEED,
    film: bool = False,
    with_state: bool = False,
    private: bool = False,
    commit_message: str = "Push to Hub",
    to: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] = lambda done, wanted: None,
) -> SharedRun:
    """Evaluates a run and uploads it to the Hugging Face Hub, as ``mlagents-style push`` does.

    Only files of an allow-list leave: configuration, metrics, models, weights, scores and a card, without paths, host
    names and arguments of simulators.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training.
        repo_id: the repository, ``USER/NAME``; it is made if need be.
        env, env_args: the environment of the evaluation, as for ``evaluate``.
        episodes: of the evaluation; 0 for none.
        max_episode_steps: cuts its episodes after so many steps, as for ``evaluate``.
        checkpoint: ``last``, ``best`` or a step.
        seed: of the evaluation.
        film: record the evaluation as replay.mp4.
        with_state: share optimizers and random streams too, so that ``--resume`` continues exactly.
        private: make a new repository private; otherwise your account's default holds, which is public as a rule.
        commit_message: of the commit.
        to: write the files into this folder instead, which must be empty or new; nothing is uploaded.
        progress: called with how many episodes of how many are done.

    Raises:
        UserError: no such run, nowhere to play, huggingface_hub is not installed, or the Hub refuses.
        BridgeError: the simulator failed.
    """
    require_at_least(0, episodes=episodes)
    folder, environment = folder_of(run), environment_for(env, env_args=env_args)
    require_repo_id(repo_id)
    if episodes:
        _require_environment(folder, environment)
    with ExitStack() as stack:
        target = _empty_folder(to) if to else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # First, so that a missing login is known before the evaluation.
        address = str(target) if to else create_repository(repo_id, private=private)
        results = {}
        if episodes:
            playing = Playing(
                run=folder,
                environment=environment,
                checkpoint=checkpoint,
                seed=seed,
                episodes=episodes,
                max_episode_steps=max_episode_steps,
                film=FilmOptions(target / "replay.mp4") if film else None,
                progress=progress,
            )
            results = _evaluated(playing)
        _write(folder, repo_id, target, results, checkpoint=checkpoint, with_state=with_state)
        names = (path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
        files = tuple(sorted(names))
        if not to:
            upload(target, repo_id, commit_message)
    return SharedRun(address, files)


def load_from_hub(
    repo_id: str,
    *,
    run_id: str | None = None,
    revision: str | None = None,
    results_dir: str | os.PathLike[str] = RESULTS,
) -> LoadedRun:
    """Makes a run of a repository of the Hugging Face Hub, as ``mlagents-style load`` does.

    Nothing of the repository is executed or unpickled, and nothing is written outside of the run's folder. A run of
    ML-Agents is imported.

    Args:
        repo_id: the repository, ``USER/NAME``.
        run_id: of the run that is made; None for the repository's name.
        revision: a branch, tag or commit; None for the newest.
        results_dir: the folder of runs.

    Returns:
        The run, and what of the repository it lacks.

    Raises:
        UserError: huggingface_hub is not installed, there is no such repository, it holds no checkpoint that can be
            read, or the run id is taken.
    """
    results = Path(results_dir)
    name = run_id or require_repo_id(repo_id).rpartition("/")[2]
    validate_run_id(name)
    if RunLayout(results / name).has_run():
        raise UserError(
            f"run id '{name}' is taken: '{results / name}' holds an earlier run. Choose another --run-id"
        )
    snapshot = find_snapshot(require_repo_id(repo_id), revision)
    names = wanted_files(snapshot)
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".load-", dir=results) as temporary:
        download(snapshot, names, Path(temporary))
        return make_run(Path(temporary), snapshot, name, results_dir=results)


def _evaluated(playing: Playing) -> dict[str, dict[str, Any]]:
    """The entries of results.json by behavior, of the policy's most likely actions."""
    with filming(playing.film):
        _, scores = play_episodes(playing)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        name: result_of(score, seed=playing.seed, evaluated_at=now)
        for name, score in scores.items()
        if score.returns
    }


def _write(
    folder: RunFolder,
    repo_id: str,
    target: Path,
    results: dict[str, dict[str, Any]],
    *,
    checkpoint: str,
    with_state: bool,
) -> None:
    """Writes all shared files but the film."""
    shared = write_package(folder, target, checkpoint=checkpoint, with_state=with_state)
    if results:
        first = results.get(next(iter(shared))) or next(iter(results.values()))
        write_atomic(target / RESULTS_FILE, json.dumps({**first, "behaviors": results}, indent=2) + "\n")
    options = load_run_options(target / "configuration.yaml").options
    card = model_card(repo_id, options, shared, results, has_film=(target / FILM).exists())
    write_atomic(target / CARD, card)


def result_of(score: Score, *, seed: int, evaluated_at: str) -> dict[str, Any]:
    """Returns the score of a behavior, under the keys that readers of ``results.json`` know, with its interval.

    The returns are those of groups where there are groups.

    Args:
        score: of at least one episode, by the policy's most likely actions.
        seed: of the simulator.
        evaluated_at: ISO date and time.
    """
    returns = np.array(score.group_returns or score.returns, np.float64)
    mean = estimate(lambda values: values.mean(axis=-1), returns, np.zeros(len(returns), np.int64))
    interval = None if np.isnan(mean.low) else [mean.low, mean.high]
    return {
        "mean_reward": mean.value,
        "std_reward": float(returns.std()),
        "is_deterministic": True,
        "n_eval_episodes": len(returns),
        "eval_datetime": evaluated_at,
        "of_groups": bool(score.group_returns),
        "confidence": CONFIDENCE,
        "confidence_interval": interval,
        "seed": seed,
    }


def _require_environment(folder: RunFolder, environment: ChosenEnvironment) -> None:
    if environment.env_path is None and options_of(folder).env_settings.env_path is None:
        raise UserError(
            f"run '{folder.path.name}' was trained by simulators that attached: name an environment to evaluate it on "
            "with --env, or share it without a score with --no-evaluation (episodes=0 in Python)"
        )


def _empty_folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"'{folder}' is not empty; expected a new folder for the shared files")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
