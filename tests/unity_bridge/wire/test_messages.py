"""Our messages are the published ones, field by field, and the row view reads the same bytes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from unity_bridge.mlagents_alias import MODULES
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.row_view_pb2 import RowViewMessage
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

PROTOS = Path(__file__).parents[3] / "protos"


def published(module: str) -> FileDescriptorProto:
    """The descriptor that mlagents-envs ships, read from its source: it cannot be imported."""
    package = importlib.util.find_spec("mlagents_envs")
    assert package is not None
    assert package.submodule_search_locations is not None
    source = Path(package.submodule_search_locations[0]) / "communicator_objects" / f"{module}.py"
    (text,) = (
        keyword.value.args[0].value  # type: ignore[attr-defined]
        for keyword in ast.walk(ast.parse(source.read_text()))
        if isinstance(keyword, ast.keyword) and keyword.arg == "serialized_pb"
    )
    return FileDescriptorProto.FromString(text.encode("latin1"))


def ours(module: str) -> FileDescriptorProto:
    file = FileDescriptorProto()
    importlib.import_module(f"unity_bridge.wire.{module}").DESCRIPTOR.CopyToProto(file)
    return file


def without_reserved(messages: list[DescriptorProto]) -> list[DescriptorProto]:
    """Numbers that must not be used again say nothing about the bytes."""
    for message in messages:
        message.ClearField("reserved_range")
    return messages


@pytest.mark.parametrize("module", MODULES)
def test_messages_are_the_published_ones(module: str) -> None:
    mine, theirs = ours(module), published(module)
    assert mine.package == theirs.package
    assert [(s.name, [(m.name, m.input_type, m.output_type) for m in s.method]) for s in mine.service] == [
        (s.name, [(m.name, m.input_type, m.output_type) for m in s.method]) for s in theirs.service
    ]
    assert without_reserved(list(mine.message_type)) == without_reserved(list(theirs.message_type))
    assert [(e.name, list(e.value)) for e in mine.enum_type] == [
        (e.name, list(e.value)) for e in theirs.enum_type
    ]


def test_every_published_file_has_a_proto_of_ours() -> None:
    files = {path.stem for path in (PROTOS / "unity_bridge" / "wire").glob("*.proto")}
    assert files == {name.removesuffix("_pb2") for name in MODULES} | {"row_view", "policy_service"}


def test_every_message_and_field_is_explained() -> None:
    for path in PROTOS.rglob("*.proto"):
        before = ""
        for line in path.read_text().splitlines():
            code = line.strip()
            declares = code.startswith(("message ", "enum ", "service ", "rpc ")) or (
                code.endswith(";") and "= " in code and not code.startswith(("//", "option", "syntax"))
            )
            assert not declares or before.startswith("//"), f"{path.name}: {code}"
            before = code


def test_the_row_view_reads_the_same_bytes() -> None:
    message = UnityMessageProto()
    message.header.status = 200
    message.unity_output.rl_initialization_output.communication_version = "1.5.0"
    message.unity_output.rl_output.side_channel = b"side"
    info = message.unity_output.rl_output.agentInfos["B"].value.add(id=3, reward=1.0)
    message.unity_input.rl_input.command = 1
    message.unity_input.rl_input.side_channel = b"channel"
    message.unity_input.rl_input.agent_actions["B"].value.add(continuous_actions=[1.0])
    message.unity_input.rl_initialization_input.seed = 7

    view = RowViewMessage.FromString(message.SerializeToString())
    (row,) = view.unity_output.rl_output.agentInfos["B"].value
    assert AgentInfoProto.FromString(row) == info
    assert view.unity_output.rl_initialization_output.communication_version == "1.5.0"
    actions = message.unity_input.rl_input.agent_actions["B"]
    assert view.unity_input.rl_input.agent_actions["B"] == actions.SerializeToString()
    assert UnityMessageProto.FromString(view.SerializeToString()) == message
