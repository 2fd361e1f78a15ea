"""The commands ``push`` and ``load``: runs shared on the Hugging Face Hub."""

from __future__ import annotations

import argparse
import sys

from trainer_service.commands.common.output import note, progress_printer, say_result
from trainer_service.errors import UserError, suggested_command
from trainer_service.running.runs.layout import run_path
from unity_bridge.untrusted_text import quoted

_MOST_NAMED = 5
"""Limit of the files that ``load`` names as left out."""


def push(parsed: argparse.Namespace) -> int:
    """Evaluates a run and uploads it."""
    from trainer_service.commands.share.share import push_to_hub
    from trainer_service.running.metrics.console import Console

    if parsed.episodes < 0:
        raise UserError(f"--episodes: expected at least 0, got {parsed.episodes}")
    run = parsed.local_dir or run_path(parsed.run or parsed.run_id, parsed.results_dir)
    with Console(tty=False, stream=sys.stderr):
        shared = push_to_hub(
            run,
            parsed.repo_id,
            env=parsed.env,
            env_args=parsed.env_args,
            episodes=parsed.episodes,
            max_episode_steps=parsed.max_episode_steps,
            checkpoint=parsed.checkpoint,
            seed=parsed.seed,
            film=parsed.film,
            with_state=parsed.with_state,
            private=parsed.private,
            commit_message=parsed.commit_message,
            to=parsed.to,
            progress=progress_printer(),
        )
    lines = [*(f"  {name}" for name in shared.files), f"{len(shared.files)} files are in {shared.address}"]
    say_result(parsed, {"address": shared.address, "files": list(shared.files)}, lines)
    return 0


def load(parsed: argparse.Namespace) -> int:
    """Makes a run of a repository."""
    from trainer_service.commands.share.share import load_from_hub
    from trainer_service.running.metrics.console import Console

    repo_id = parsed.repo or parsed.repo_id
    with Console(tty=False, stream=sys.stderr):
        loaded = load_from_hub(
            repo_id, run_id=parsed.run_id, revision=parsed.revision, results_dir=parsed.results_dir
        )
    if loaded.left_out and not parsed.json:
        named = "; ".join(quoted(name) for name in loaded.left_out[:_MOST_NAMED])
        more = len(loaded.left_out) - _MOST_NAMED
        note(f"Not taken over: {named}{f' and {more} more' if more > 0 else ''}")
    location = [] if str(parsed.results_dir) == "results" else ["--results-dir", str(parsed.results_dir)]
    lines = [
        f"Loaded {repo_id} (commit {loaded.commit[:10]}) into {loaded.folder}",
        f"  score:  {suggested_command('evaluate', loaded.folder.name, *location)}",
    ]
    result = {"folder": str(loaded.folder), "commit": loaded.commit, "left_out": list(loaded.left_out)}
    say_result(parsed, result, lines)
    return 0
