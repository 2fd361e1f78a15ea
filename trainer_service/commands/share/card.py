"""The card of a shared run: its metadata for the Hub, its scores, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from trainer_service._version import __version__
from trainer_service.config import RunOptions
from trainer_service.running.runs.checkpoint import Checkpoint
from unity_bridge.extras import install_command

LIBRARIES = ("ml-agents", "trainer-service")
"""The library that the Hub files the model under, and ours."""


def model_card(
    repo_id: str,
    options: RunOptions,
    checkpoints: Mapping[str, Checkpoint],
    results: Mapping[str, Mapping[str, Any]],
    *,
    has_film: bool,
) -> str:
    """Returns the text of README.md.

    Args:
        repo_id: the repository's name, ``USER/NAME``.
        options: the shared options.
        checkpoints: by behavior; the first names the environment, as for ML-Agents.
        results: the entries of results.json by behavior; none without an evaluation.
        has_film: whether the repository has a film.
    """
    environment = next(iter(checkpoints))
    trainer = checkpoints[environment].settings.trainer_type
    metadata: dict[str, Any] = {
        "library_name": LIBRARIES[0],
        "tags": [
            environment, "deep-reinforcement-learning", "reinforcement-learning", f"ML-Agents-{environment}",
            LIBRARIES[1],
        ],
    }  # fmt: skip
    if environment in results:
        metadata["model-index"] = [_model_index(trainer, environment, results[environment])]
    sections = [
        f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---",
        f"# **{trainer}** Agent playing **{environment}**",
        f"This is a trained model of a **{trainer}** agent playing **{environment}**, made by trainer-service "
        f"{__version__}, which trains over the protocol of\n"
        "[Unity ML-Agents](https://github.com/Unity-Technologies/ml-agents). It loads without unpickling.",
        *([_results_section(results)] if results else []),
        _usage(repo_id, options),
        _watching(repo_id, has_film=has_film),
    ]
    return "\n\n".join(sections) + "\n"


def _model_index(trainer: str, environment: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entry of the Hub's leaderboards, in the form of huggingface_sb3."""
    task = "reinforcement-learning"
    value = f"{result['mean_reward']:.2f} +/- {result['std_reward']:.2f}"
    return {
        "name": trainer,
        "results": [
            {
                "task": {"type": task, "name": task},
                "dataset": {"name": environment, "type": environment},
                "metrics": [
                    {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
                ],
            }
        ],
    }


def _results_section(results: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "## Results",
        "",
        "| behavior | return | 95 % interval of the mean | episodes | seed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        interval = result["confidence_interval"]
        shown = "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
        of = " (of groups)" if result["of_groups"] else ""
        mean = f"{result['mean_reward']:.2f} ± {result['std_reward']:.2f}{of}"
        lines.append(f"| {name} | {mean} | {shown} | {result['n_eval_episodes']} | {result['seed']} |")
    lines += ["", "Mean ± standard deviation of episode returns by the most likely actions."]
    return "\n".join(lines)


def _usage(repo_id: str, options: RunOptions) -> str:
    name, env = repo_id.rpartition("/")[2], options.env_settings.env_path
    flag = f" --env {env}" if env else ""
    seed = f" --seed {options.env_settings.seed}" if (options.env_settings.seed or 0) >= 0 else ""
    return (
        f"## Usage\n\nIn a checkout of Trainer Service:\n\n```bash\n{install_command('hub')}\n"
        f"mlagents-style load {repo_id}\nmlagents-style evaluate {name}{flag}\n"
        f"mlagents-style learn results/{name}/configuration.yaml{flag} --run-id mine --initialize-from {name}\n"
        f"mlagents-style serve {name}  # actions for other programs, by gRPC\n"
        f"mlagents-style export {name} --bundle  # files for browsers and programs without this package\n```\n\n"
        "Train it again from the start:\n\n```bash\n"
        f"mlagents-style learn configuration.yaml{flag} --run-id again{seed}\n```"
    )


def _watching(repo_id: str, *, has_film: bool) -> str:
    film = "A film of it is in `replay.mp4`. " if has_film else ""
    return (
        "### Watch your Agent play\n\n"
        f"{film}If the environment is one of ML-Agents' official environments, watch the agent in your browser: "
        f"go to https://huggingface.co/unity, choose the model `{repo_id}` and its *.onnx file."
    )
