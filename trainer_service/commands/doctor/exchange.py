"""Checks that exchange messages with a real simulator, started as a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_service.commands.doctor.report import Finding
from trainer_service.config import RunOptions, check_files
from trainer_service.errors import UserError
from trainer_service.running.collection.launching import program_for
from unity_bridge.errors import BridgeError
from unity_bridge.server.bridge import Bridge, BridgeSettings, Departure, Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import first_allowed

BUNDLED = "sim:basic"
_MESSAGES = 20
_LEAST_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Exchange:
    """The result of an exchange with a simulator."""

    specs: Mapping[str, BehaviorSpec]
    """Declared behaviors, by full id."""
    messages: int
    seconds: float
    """Seconds from the start of the program to its last message."""


def bundled_simulator() -> Finding:
    """Checks the whole way: a process, the port, messages, actions and back."""
    return _exchange("loopback exchange", BUNDLED, RunOptions())[0]


def environment(env: str, options: RunOptions) -> Iterator[Finding]:
    """Checks the user's simulator, and whether the configuration fits what it declares."""
    finding, exchanged = _exchange(f"env {env}", env, options)
    yield finding
    if exchanged is not None and (options.behaviors or options.default_settings is not None):
        yield from _behaviors(exchanged.specs, options)


def configuration(path: Path) -> Iterator[Finding]:
    """Checks a configuration file, as ``mlagents-style check`` does."""
    (check,) = check_files([path])
    yield from (Finding("fail", "configuration", error) for error in check.errors)
    yield from (Finding("warn", "configuration", warning) for warning in check.warnings)
    if check.ok and not check.warnings:
        yield Finding("ok", "configuration", f"{path} is valid")


def _exchange(subject: str, env: str, options: RunOptions) -> tuple[Finding, Exchange | None]:
    timeout_s = max(options.env_settings.timeout_wait, _LEAST_TIMEOUT_S)
    try:
        exchanged = exchange_messages(env, options, timeout_s=timeout_s)
    except (UserError, BridgeError) as error:
        return Finding("fail", subject, str(error), "see above all what the program printed"), None
    names = ", ".join(exchanged.specs) or "no behaviors"
    found = f"{exchanged.messages} messages in {exchanged.seconds:.1f} s with the start of the program; it has {names}"
    return Finding("ok", subject, found), exchanged


def exchange_messages(env: str, options: RunOptions, *, timeout_s: float) -> Exchange:
    """Starts one simulator and answers its first messages with actions that are allowed.

    Raises:
        BridgeError: it cannot be started, or breaks off.
    """
    command = program_for(options, env, options.env_settings.env_args or ())
    specs: dict[str, BehaviorSpec] = {}
    messages, began = 0, time.monotonic()
    settings = BridgeSettings(
        seed=0,
        picture_layout=options.env_settings.picture_layout,
        timeout_wait_s=timeout_s,
        max_lifetime_restarts=0,
    )
    with Bridge(settings) as bridge:
        bridge.launch(command)
        while messages < _MESSAGES:
            for event in bridge.receive(timeout_s):
                if isinstance(event, Departure):
                    raise BridgeError(event.reason)
                _answer(bridge, event, specs)
                messages += 1
    return Exchange(specs, messages, time.monotonic() - began)


def _answer(bridge: Bridge, tick: Tick, specs: dict[str, BehaviorSpec]) -> None:
    specs.update(tick.new_specs)
    actions = {name: first_allowed(batch, specs[name].action_spec) for name, batch in tick.steps.items()}
    bridge.reply(tick.simulator, actions)


def _behaviors(specs: Mapping[str, BehaviorSpec], options: RunOptions) -> Iterator[Finding]:
    from trainer_service.running.collection.heterogeneous_groups import (
        HeterogeneousGroups,  # torch, which takes a second to load
    )

    try:
        merged = HeterogeneousGroups(options.teams).merge(Tick(0, specs, {})).new_specs
    except UserError as error:
        yield Finding("fail", "teams", str(error), "are the members spelled as in the simulator?")
        return
    declared = {full_id.partition("?")[0]: spec for full_id, spec in merged.items()}
    for name, spec in declared.items():
        yield _behavior(name, spec, options)
    for name in dict.fromkeys([*options.behaviors, *options.teams]):
        if name not in declared:
            found = "configured, and not among the first that the simulator declares"
            yield Finding("warn", f"behavior {name}", found, "is it spelled as in the simulator?")


def _behavior(name: str, spec: BehaviorSpec, options: RunOptions) -> Finding:
    """Checks that a policy can be made for a behavior that the simulator declares."""
    import torch

    from trainer_service.learning.algorithms import Compute
    from trainer_service.learning.algorithms.common.observation_selection import with_group_size
    from trainer_service.running.behaviors.behavior import Behavior
    from trainer_service.running.collection.heterogeneous_groups import with_agent_counts

    subject = f"behavior {name}"
    try:
        settings = options.behavior_settings(name)
        if spec.members:
            spec = with_agent_counts(name, spec, options.teams[name], None)
            settings = with_group_size(settings, len(spec.agent_members))
        Behavior(name, spec, settings, Compute(torch.device("cpu"), 0), learns=False)
    except UserError as error:
        return Finding("fail", subject, str(error))
    sensors = ", ".join(f"{sensor.name} {list(sensor.shape)}" for sensor in spec.observation_specs)
    actions = spec.action_spec
    return Finding(
        "ok",
        subject,
        f"sees {sensors}; {actions.continuous_size} continuous actions, branches {list(actions.discrete_branches)}",
    )
