"""Checks of an installation and a set-up: ``mlagents-style doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from trainer_service.commands.doctor import exchange, installation, surroundings
from trainer_service.commands.doctor.join import join
from trainer_service.commands.doctor.plugins import plugins
from trainer_service.commands.doctor.report import Check, Finding
from trainer_service.config import DistributedSettings, RunOptions
from unity_bridge.simulators.schemes import SCHEMES

__all__ = ["Finding", "Setup", "run_checks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The set-up to check besides the installation."""

    options: RunOptions = field(default_factory=RunOptions)
    """Options of the simulator, the results folder, the device and a Ray cluster."""
    port: int = 5004
    config: Path | None = None
    join: str | None = None
    """The join code of a trainer on another machine; empty for that of the environment variable."""
    address: str | None = None
    """Where that trainer is, if not where its code says."""


def run_checks(setup: Setup) -> Iterator[Finding]:
    """Findings of one check after the other; the last ones start processes and take seconds."""
    for check in _checks(setup):
        yield from check.findings()


def _checks(setup: Setup) -> Iterator[Check]:
    yield Check("Python", installation.python)
    yield Check("dependencies", installation.dependencies)
    for scheme in SCHEMES.values():
        if scheme.packages:
            yield Check(scheme.name, partial(installation.environments, scheme))
    yield Check("plugins", plugins)
    yield Check("torch device", partial(installation.torch_device, setup.options.torch_settings.device))
    yield Check("compiled kernel", installation.compiled_kernel)
    yield Check("gRPC server", installation.grpc_server)
    yield Check("PNG pictures", installation.pictures)
    yield Check("watch", installation.watch_page)
    yield Check("ONNX export", installation.onnx_export)
    yield Check("mlagents_envs", installation.low_level_api)
    yield Check(f"port {setup.port}", partial(surroundings.attach_port, setup.port))
    results = Path(setup.options.checkpoint_settings.results_dir)
    yield Check("results", partial(surroundings.results_folder, results))
    yield Check("proxies", surroundings.proxies)
    yield Check("loopback exchange", exchange.bundled_simulator)
    if setup.config is not None:
        yield Check("configuration", partial(exchange.configuration, setup.config))
    env, ray = setup.options.env_settings.env_path, setup.options.distributed
    if ray is not None and ray.ray_address is not None:
        yield Check("Ray", partial(_ray, ray, env))
    elif env is not None:
        yield Check(f"env {env}", partial(exchange.environment, env, setup.options))
    if setup.join is not None:
        yield Check("join", partial(join, setup.join, setup.address))


def _ray(settings: DistributedSettings, env: str | None) -> Iterator[Finding]:
    from trainer_service.commands.doctor import ray_nodes

    yield from ray_nodes.cluster(settings, env)
