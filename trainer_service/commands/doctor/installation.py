"""Checks that the packages this one needs are there, in a known version, and work."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

import numpy as np
from packaging.requirements import Requirement

from trainer_service.commands.doctor.report import Finding
from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from unity_bridge.codec.pictures import decode_png, encode_png
from unity_bridge.extras import WATCH_PACKAGES, install_hint
from unity_bridge.simulators.schemes import Scheme
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.transport.inbox import can_serve_directly

DISTRIBUTION = "trainer-service"
OLDEST_PYTHON, NEXT_PYTHON = (3, 11), (3, 15)


def python() -> Finding:
    """Checks the interpreter's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    if OLDEST_PYTHON <= sys.version_info[:2] < NEXT_PYTHON:
        return Finding("ok", "Python", f"{version} ({sys.executable})")
    known = f"{'.'.join(map(str, OLDEST_PYTHON))} to {NEXT_PYTHON[0]}.{NEXT_PYTHON[1] - 1}"
    return Finding(
        "fail", "Python", version, f"expected {known}: make a virtual environment with one of these"
    )


def dependencies() -> Iterator[Finding]:
    """Checks every declared dependency against its declared bounds."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        remedy = "versions cannot be judged: pip install -e ."
        yield Finding("warn", DISTRIBUTION, "not installed, only found on the path", remedy)
        return
    yield Finding("ok", DISTRIBUTION, metadata.version(DISTRIBUTION))
    for requirement in map(Requirement, declared):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _dependency(requirement)


def _dependency(requirement: Requirement) -> Finding:
    install = f"run: pip install '{requirement.name}{requirement.specifier}'"
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding("fail", requirement.name, f"not installed, expected {requirement.specifier}", install)
    if requirement.specifier.contains(version, prereleases=True):
        return Finding("ok", requirement.name, version)
    return Finding("fail", requirement.name, f"{version}, expected {requirement.specifier}", install)


def environments(scheme: Scheme) -> Finding:
    """Checks for the packages that only environments of a scheme need."""
    needed = f"only {scheme.name}: environments need it"
    return _optional(scheme.name, scheme.packages, needed, needs_all=scheme.needs_all)


def watch_page() -> Finding:
    """Checks for the packages that only the page of ``watch`` and ``demo`` needs."""
    return _optional("watch", WATCH_PACKAGES, "only watch and demo need it", needs_all=True)


def _optional(extra: str, packages: Sequence[str], needed: str, *, needs_all: bool) -> Finding:
    """The finding on the packages of an extra, of which all are needed, or any one."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing and (needs_all or len(missing) == len(packages)):
        return Finding(
            "ok", extra, f"{' and '.join(missing)} not installed", f"{needed}: {install_hint(extra)}"
        )
    found = [f"{name} {_version(name.replace('_', '-'))}" for name in packages if name not in missing]
    return Finding("ok", extra, ", ".join(found))


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def torch_device(name: str | None) -> Finding:
    """Checks the device of networks, by computing something there."""
    import torch

    from trainer_service.running.training.compute import choose_device

    cores = os.cpu_count() or 1
    try:
        device = choose_device(name)
    except UserError as error:
        return Finding(
            "fail", "torch device", str(error), "choose another --torch-device, or install a torch for it"
        )
    others = f", {torch.cuda.device_count()} CUDA devices" if torch.cuda.is_available() else ", no CUDA"
    chosen = (
        str(device)
        if name or device.type == "cpu"
        else f"{device} for pictures and large minibatches, else cpu"
    )
    return Finding(
        "ok", "torch device", f"{chosen} ({cores} cores, {torch.get_num_threads()} threads{others})"
    )


def compiled_kernel() -> Finding:
    """Checks for the compiled part of PPO, and holds it to torch."""
    from trainer_service.learning.kernels import SLOW, fast_paths_allowed
    from trainer_service.learning.kernels.compiled.check import checked_library
    from trainer_service.learning.kernels.compiled.library import UnavailableError

    if not fast_paths_allowed():
        return Finding(
            "warn", "compiled kernel", f"turned off, as all fast paths are, by {SLOW} in the environment"
        )
    try:
        return Finding("ok", "compiled kernel", f"for {checked_library().name}, equal to torch and faster")
    except UnavailableError as error:
        remedy = "it works; PPO's updates on vectors take two to six times as long"
        return Finding("ok", "compiled kernel", f"none: {error}", remedy)


def grpc_server() -> Finding:
    """Checks which of the two gRPC servers the installed grpcio allows."""
    if can_serve_directly():
        return Finding("ok", "gRPC server", "direct, on grpcio's core")
    remedy = "it works, with more time per message; grpcio releases that we know offer the faster one"
    return Finding("warn", "gRPC server", "with threads: this grpcio has another core interface", remedy)


def pictures() -> Finding:
    """Checks that a PNG is read as it was written."""
    picture = np.arange(3 * 5 * 7, dtype=np.uint8).reshape(3, 5, 7)
    if np.array_equal(decode_png(encode_png(picture), picture.shape, (), "the doctor's picture"), picture):
        return Finding("ok", "PNG pictures", "read as they were written")
    return Finding(
        "fail", "PNG pictures", "read otherwise than written", "run: pip install --force-reinstall pillow"
    )


def onnx_export() -> Finding:
    """Checks that a small policy can be exported as a model for Unity."""
    import torch

    from trainer_service.learning.algorithms import Compute
    from trainer_service.running.behaviors.behavior import Behavior
    from trainer_service.running.interop.onnx_export import OPSET, to_onnx

    spec = BehaviorSpec((ObservationSpec("numbers", (2,)),), ActionSpec(1, (2,)))
    behavior = Behavior("doctor", spec, TrainerSettings(), Compute(torch.device("cpu"), 0), learns=False)
    try:
        model = to_onnx(behavior.learner.actor.policy_network(), spec)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        remedy = "runs continue without models; reinstall torch and onnx within the bounds above"
        return Finding("fail", "ONNX export", reason[:300], remedy)
    return Finding("ok", "ONNX export", f"a model of {len(model)} bytes, operator set {OPSET}")


def low_level_api() -> Finding:
    """Checks that programs for ``mlagents_envs`` can use this package's environment."""
    from unity_bridge.mlagents_alias import install

    try:
        install()
        environment = importlib.import_module("mlagents_envs.environment")
    except (ImportError, TypeError, AttributeError) as error:
        remedy = "only programs that use mlagents_envs are concerned: pip install 'mlagents-envs>=0.28,<2'"
        return Finding("fail", "mlagents_envs", f"{type(error).__name__}: {error}", remedy)
    return Finding("ok", "mlagents_envs", f"imports, API {environment.UnityEnvironment.API_VERSION}")
