"""The published package runs on our messages. Each test has a process of its own: what is imported stays imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

REPOSITORY = Path(__file__).parents[2]


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def test_the_real_environment_can_be_imported_and_speaks_our_messages() -> None:
    result = run(
        """
from unity_bridge.mlagents_alias import install
install()
install()
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.rpc_utils import steps_from_proto
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto as theirs
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto as ours
assert theirs is ours
print(UnityEnvironment.__name__)
"""
    )
    assert (result.stdout, result.returncode) == ("UnityEnvironment\n", 0), result.stderr


def test_modules_imported_before_are_not_replaced() -> None:
    result = run(
        """
import sys
sys.modules["mlagents_envs.communicator_objects.header_pb2"] = object()
from unity_bridge.mlagents_alias import install
install()
"""
    )
    expected = "ImportError: mlagents_envs.communicator_objects.header_pb2 was imported before install()"
    assert expected in result.stderr
