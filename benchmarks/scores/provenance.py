"""The kind of machine, threads and versions on which scores depend, and the hash of weights."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer_service.learning.kernels.choice import compiled_library
from trainer_service.running.runs.checkpoint import load_checkpoint

THREADS = "1"
"""Of every run: small products are no faster with two, and two runs at once share the machine fairly."""

_COMMIT = "commit"


def made_with(packages: Sequence[str], checkout: Path) -> dict[str, str]:
    """The versions that a run made here depends on. packages: those of the environment."""
    library = compiled_library()
    return {
        "processor": _processor(),
        "kernel": "none" if library is None else library.name,
        "threads": THREADS,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "numpy", *packages)},
        _COMMIT: _commit(checkout),
    }


def is_same_kind(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether equal code gives equal weights with both: all but the commit and Python's version are equal."""
    ignored = {_COMMIT, "python"}
    return {k: v for k, v in one.items() if k not in ignored} == {
        k: v for k, v in other.items() if k not in ignored
    }


def hash_of_weights(run: Path) -> str:
    """The SHA-256 of a run's last checkpoints: all tensors of its learners, optimizers included, with their names."""
    digest = hashlib.sha256()
    for checkpoint in sorted(run.glob("*/checkpoint.safetensors")):
        for name, array in _tensors(load_checkpoint(checkpoint).algorithm, checkpoint.parent.name):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _tensors(value: Any, name: str) -> list[tuple[str, Any]]:
    """The tensors of nested mappings and lists, with their paths, in the order of their names."""
    if isinstance(value, torch.Tensor):
        return [(name, value.detach().cpu().numpy())]
    if isinstance(value, np.ndarray):
        return [(name, value)]
    if isinstance(value, Mapping):
        return [each for key in sorted(value, key=str) for each in _tensors(value[key], f"{name}/{key}")]
    if isinstance(value, list | tuple):
        return [each for i, item in enumerate(value) for each in _tensors(item, f"{name}/{i}")]
    return []


def _version(package: str) -> str:
    """A release, without the suffix of its build, such as +cpu; empty where it is not installed."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """The model of the processor, or the architecture where the system does not tell."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _commit(checkout: Path) -> str:
    """The commit of the code, with a plus sign where sources or configurations differ; empty outside a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git(
        "status",
        "--porcelain",
        "--",
        "trainer_service",
        "unity_bridge",
        "configs",
        "benchmarks/scores/configs",
    )
    return git("rev-parse", "--short=10", "HEAD") + "+" * bool(changed)
