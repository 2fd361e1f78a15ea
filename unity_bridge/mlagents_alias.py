"""Lets the published mlagents-envs package run in our process.

Its own generated messages refuse to load with any protobuf that is still maintained. Ours are the same messages,
so its modules are given ours under the names that they look for.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

UPSTREAM = "mlagents_envs.communicator_objects"
OURS = "unity_bridge.wire"

MODULES = (
    "agent_action_pb2",
    "agent_info_action_pair_pb2",
    "agent_info_pb2",
    "brain_parameters_pb2",
    "capabilities_pb2",
    "command_pb2",
    "custom_reset_parameters_pb2",
    "demonstration_meta_pb2",
    "engine_configuration_pb2",
    "header_pb2",
    "observation_pb2",
    "space_type_pb2",
    "training_analytics_pb2",
    "unity_input_pb2",
    "unity_message_pb2",
    "unity_output_pb2",
    "unity_rl_initialization_input_pb2",
    "unity_rl_initialization_output_pb2",
    "unity_rl_input_pb2",
    "unity_rl_output_pb2",
    "unity_to_external_pb2",
)
"""The published set. The stub of the service is not among them: upstream's own works on top of these."""


def install() -> None:
    """Makes ``mlagents_envs.communicator_objects.*_pb2`` our generated modules, in this process.

    Call it before anything imports ``mlagents_envs.environment`` or ``mlagents_envs.side_channel``. Calling it
    again changes nothing.

    Raises:
        ImportError: mlagents-envs is not installed, or other modules already go by these names.
    """
    package = importlib.import_module(UPSTREAM)
    for name in MODULES:
        _alias(package, name, importlib.import_module(f"{OURS}.{name}"))


def _alias(package: ModuleType, name: str, ours: ModuleType) -> None:
    alias = f"{UPSTREAM}.{name}"
    if sys.modules.setdefault(alias, ours) is not ours:
        raise ImportError(f"{alias} was imported before install() could replace it")
    setattr(package, name, ours)
