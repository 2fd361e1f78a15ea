"""The command ``serve``: trained policies as a gRPC service."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from trainer_service.commands.common import flags
from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.output import say
from trainer_service.commands.common.trained_run import one_thread
from trainer_service.errors import UserError
from trainer_service.running.collection.attach_port import AttachPort
from trainer_service.running.metrics.console import Console
from trainer_service.running.monitoring.endpoint import answering
from trainer_service.running.policy import Policy
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.serving.served_runs import ServedRun, act, watch
from unity_bridge.extras import install_hint
from unity_bridge.simulators.client import terminate_like_ctrl_c
from unity_bridge.transport.ports import address_of, port_number


def serve(
    runs: Annotated[Sequence[str], Flag("runs, by id or folder", "RUN")],
    *,
    checkpoint: Annotated[str, Flag("last, best or a step (default last)", "WHICH")] = "last",
    follow: Annotated[bool, Flag("use every policy that a run saves from now on")] = False,
    memories: Annotated[int, Flag(
        "callers that a policy with memory remembers (default 100,000)", "N", at_least=1)] = 100_000,
    forget_after: Annotated[int, Flag(
        "forget a caller after this time without a call (default 600)", "SECONDS", at_least=1)] = 600,
    host: Annotated[str, Flag("where callers connect (default 127.0.0.1)", "ADDRESS")] = "127.0.0.1",
    port: Annotated[int, Flag("the port for that (default 50051)", "PORT", type=port_number)] = 50_051,
    tls_cert: Annotated[Path | None, Flag(
        "certificate of that port, in PEM (default: made for a --host beyond this machine)", "FILE")] = None,
    tls_key: Annotated[Path | None, Flag("its private key, in PEM", "FILE")] = None,
    token_file: Annotated[Path | None, Flag(
        "tokens that the port accepts, one a line (default: made likewise)", "FILE")] = None,
    insecure_listen: Annotated[bool, Flag(
        "no TLS and no token, though other machines reach --host; for a network that you trust")] = False,
    metrics_port: Annotated[int | None, Flag(
        "a port of this machine that answers Prometheus and health checks", "PORT", type=port_number)] = None,
    device: flags.Device = "cpu",
    seed: Annotated[int, Flag("of drawn actions", "N")] = flags.EVALUATION_SEED,
    results_dir: flags.ResultsDir = flags.RESULTS,
) -> None:  # fmt: skip
    """Serves trained policies by gRPC: programs send observations and get actions (docs/serving.md)."""
    at = AttachPort(
        host=host, port=port, insecure_listen=insecure_listen, tls_cert=tls_cert, tls_key=tls_key, token_file=token_file
    )  # fmt: skip
    with Console(tty=False, stream=sys.stderr), one_thread(), terminate_like_ctrl_c():
        load, served = partial(Policy.load, device=device, seed=seed), dict[str, ServedRun]()
        for folder in (RunFolder.read(results_dir, run).path.resolve() for run in runs):
            if folder.name in served:
                raise UserError(f"two runs are called '{folder.name}': requests could not tell them apart")
            served[folder.name] = ServedRun(folder, checkpoint, load, (memories, forget_after))
        well = (HTTPStatus.OK, {"status": "ok"})
        counters = nullcontext("") if metrics_port is None else answering(
            metrics_port, lambda prometheus: prometheus.PolicyMetrics(served).text, lambda query: well
        )  # fmt: skip
        with counters as address, suppress(KeyboardInterrupt):
            asyncio.run(_serve(served, at, address, follow=follow))


async def _serve(served: Mapping[str, ServedRun], at: AttachPort, counters: str, *, follow: bool) -> None:
    """Serves until it is cancelled."""
    if not all(map(find_spec, ("grpc_health", "grpc_reflection"))):
        raise UserError(f"grpcio-health-checking and grpcio-reflection are missing: {install_hint('serve')}")
    from unity_bridge.serving.server import policy_server

    access = at.access()
    async with policy_server(at.host, at.port, partial(act, served), access) as port:
        lines = [f"Serving at {address_of(at.host, port)}{' with TLS and tokens' if access else ''}"]
        lines += [
            f"run {name}, behavior {behavior}, step {each.policy.step:,}"
            for name, run in served.items() for behavior, each in run.policies.items()
        ]  # fmt: skip
        say("\n  ".join([*lines, *([f"counters at {counters}/metrics"] if counters else [])]))
        if access is not None:
            access.announce(at.host, port, "callers of other machines (docs/serving.md)")
        await watch(served, follow=follow)
