"""What is broken in this installation or set-up: ``mlagents-style doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from trainer_service.config import RunOptions
from trainer_service.doctor import exchange, installation, surroundings
from trainer_service.doctor.report import Finding, Look

__all__ = ["Finding", "Patient", "examine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """What shall be looked at besides the installation."""

    results_dir: Path = Path("results")
    port: int = 5004
    device: str | None = None
    """As --torch-device says; None is what a run would choose."""
    config: Path | None = None
    env: str | None = None
    """A simulator to start."""
    options: RunOptions = field(default_factory=RunOptions)
    """How to start it, and what it is checked against."""


def examine(patient: Patient) -> Iterator[Finding]:
    """Looks at one thing after the other; the last ones start processes and take seconds."""
    for look in _looks(patient):
        yield from look.findings()


def _looks(patient: Patient) -> Iterator[Look]:
    yield Look("Python", installation.python)
    yield Look("dependencies", installation.dependencies)
    yield Look("gymnasium", installation.gymnasium)
    yield Look("pettingzoo", installation.pettingzoo)
    yield Look("torch device", partial(installation.torch_device, patient.device))
    yield Look("gRPC server", installation.grpc_server)
    yield Look("PNG pictures", installation.pictures)
    yield Look("ONNX export", installation.onnx_export)
    yield Look("mlagents_envs", installation.low_level_api)
    yield Look(f"port {patient.port}", partial(surroundings.attach_port, patient.port))
    yield Look("results", partial(surroundings.results_folder, patient.results_dir))
    yield Look("proxies", surroundings.proxies)
    yield Look("loopback exchange", exchange.bundled_simulator)
    if patient.config is not None:
        yield Look("configuration", partial(exchange.configuration, patient.config))
    if patient.env is not None:
        yield Look(f"env {patient.env}", partial(exchange.environment, patient.env, patient.options))
