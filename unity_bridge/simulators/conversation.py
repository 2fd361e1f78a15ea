"""The simulator's side of a conversation, over bytes; the mirror of ``unity_bridge.server.session``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from google.protobuf.message import DecodeError

from unity_bridge.codec.messages import decode_actions, encode_behavior_spec, encode_steps
from unity_bridge.codec.protocol import API_VERSION, OK, OUR_LIBRARY, STOP
from unity_bridge.errors import WireError
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Scene, copies_of
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, Actions, Steps
from unity_bridge.wire.capabilities_pb2 import UnityRLCapabilitiesProto
from unity_bridge.wire.command_pb2 import CommandProto
from unity_bridge.wire.row_view_pb2 import RowViewMessage, RowViewRLInput

Exchange = Callable[[bytes], bytes]
"""Sends a serialized message to the trainer and returns its reply."""

Watch = Callable[[Steps, bool], None]
"""Takes the next steps of a scene, and whether the trainer has reset the scene."""

PACKAGE_VERSION = "3.0.1"
"""The package version that we announce; not 3.0.0, which is known to scramble float pictures."""

_CAPABILITIES = UnityRLCapabilitiesProto(
    **{field.name: True for field in UnityRLCapabilitiesProto.DESCRIPTOR.fields}
)


def converse(
    exchange: Exchange,
    scene: Scene,
    *,
    seed: int | None = None,
    episodes: int | None = None,
    watch: Watch = lambda steps, is_reset: None,
    academy: Academy | None = None,
) -> str:
    """Holds a ``conversation`` by a function that sends a message and returns the reply.

    Args:
        exchange: the way to the trainer. Its exceptions pass through.
        scene, seed, episodes, watch, academy: as ``conversation``.

    Returns:
        Why it ended, in a few words.

    Raises:
        WireError, SceneError: as ``conversation``.
    """
    messages = conversation(scene, seed=seed, episodes=episodes, watch=watch, academy=academy)
    message = next(messages)
    while True:
        assert isinstance(message, bytes)
        reply = exchange(message)
        try:
            message = messages.send(reply)
        except StopIteration as over:
            return str(over.value)


def conversation(
    scene: Scene,
    *,
    seed: int | None = None,
    episodes: int | None = None,
    watch: Watch = lambda steps, is_reset: None,
    academy: Academy | None = None,
    as_records: bool = False,
) -> Generator[bytes | Steps, bytes | Actions, str]:
    """Plays the scene for a trainer until one of the two has enough.

    A generator of the simulator's messages, which is sent the trainer's reply to each.

    Args:
        as_records: yield steps as they are where they have no message beside them and their behaviors are described;
            the trainer may answer with actions as they are.
        scene: not reset yet.
        seed: of the scene; what the trainer says if None.
        episodes: say goodbye after the message that completes so many; None plays on.
        watch: called whenever the scene has changed.
        academy: the scene's, where it has one.

    Returns:
        Why it ended, in a few words.

    Raises:
        WireError: the trainer refuses the introduction, or its reply breaks the protocol.
        SceneError: the scene went wrong.
    """
    reply = _read((yield introduction(copies_of(scene))))
    if reply.header.status != OK:
        raise WireError("the trainer refused the introduction")
    if not reply.unity_input.HasField("rl_initialization_input"):
        raise WireError("the trainer's first reply: expected rl_initialization_input, got none")
    given_seed = reply.unity_input.rl_initialization_input.seed
    academy = academy or Academy()
    reply = _read((yield _ok_message().SerializeToString()))
    # A trainer begins with RESET, but any command will do: there is nothing to act on yet.
    if not _goes_on(reply):
        return "the trainer ended the conversation"

    behaviors = scene.behaviors  # once: a scene may make them again whenever it is asked
    sender = StepSender(behaviors)
    # The first parameters come with the first reset, and hold for it.
    academy.receive(reply.unity_input.rl_input.side_channel)
    # Random generators want no negative seeds; a trainer's is an int32.
    steps = scene.reset((given_seed if seed is None else seed) % 2**31)
    completed, is_reset = 0, True
    while True:
        watch(steps, is_reset)
        is_reset = False
        outgoing = academy.outgoing()
        has_record = as_records and not outgoing and sender.has_described(steps)
        answer = yield steps if has_record else sender.message(steps, outgoing)
        given = None if isinstance(answer, bytes) else answer
        if given is None:
            reply = _read(answer)
            if not _goes_on(reply):
                return "the trainer ended the conversation"
        completed += sum(batch.num_terminal for batch in steps.values())
        if episodes is not None and completed >= episodes:
            yield goodbye()
            return f"{completed} episodes are complete"
        if given is not None:
            steps = scene.step(_for_all(given, steps, behaviors))
            continue
        rl_input = reply.unity_input.rl_input
        academy.receive(rl_input.side_channel)
        is_reset = rl_input.command == CommandProto.RESET
        steps = scene.reset() if is_reset else scene.step(read_actions(rl_input, steps, behaviors))


class StepSender:
    """Makes the messages of a scene's steps; describes each behavior once, beside its first agents."""

    def __init__(self, behaviors: Mapping[str, BehaviorSpec]) -> None:
        self._behaviors = behaviors
        self._described: set[str] = set()

    def has_described(self, steps: Steps) -> bool:
        """Whether the trainer knows the behaviors of these steps."""
        return self._described.issuperset(steps)

    def message(self, steps: Steps, side_channel: bytes = b"") -> bytes:
        message = _ok_message()
        output = message.unity_output
        output.rl_output.side_channel = side_channel
        infos = output.rl_output.agentInfos
        for behavior, batch in steps.items():
            spec = self._behaviors[behavior]
            infos[behavior].ParseFromString(encode_steps(batch, spec))
            if len(batch) and behavior not in self._described:
                self._described.add(behavior)
                output.rl_initialization_output.brain_parameters.append(
                    encode_behavior_spec(behavior, spec.action_spec)
                )
        return message.SerializeToString()


def introduction(copies: int = 1) -> bytes:
    """The first message of all: version, name and capabilities of the simulator, and copies of its task."""
    message = _ok_message()
    output = message.unity_output.rl_initialization_output
    output.name = OUR_LIBRARY
    output.package_version = PACKAGE_VERSION
    output.communication_version = API_VERSION
    output.capabilities.CopyFrom(_CAPABILITIES)
    message.unity_output.num_areas = copies
    return message.SerializeToString()


def goodbye() -> bytes:
    """The last message of a simulator that leaves by itself."""
    message = RowViewMessage()
    message.header.status = STOP
    return message.SerializeToString()


def read_actions(
    rl_input: RowViewRLInput, asked: Steps, behaviors: Mapping[str, BehaviorSpec]
) -> dict[str, ActionBatch]:
    """The actions for every row that waited; zeros for a behavior that the trainer left out, as in Unity.

    Args:
        rl_input: the trainer's reply.
        asked: the message that it answers.
        behaviors: of the scene.

    Raises:
        WireError: actions for an unknown behavior, or fewer than asked for.
    """
    given = rl_input.agent_actions
    unknown = sorted(set(given) - set(behaviors))
    if unknown:
        raise WireError(f"actions for behavior '{unknown[0]}': expected one of {sorted(behaviors)}")
    return {
        behavior: decode_actions(
            given.get(behavior, b""),
            len(batch) - batch.num_terminal,
            behaviors[behavior].action_spec,
            f"actions for behavior '{behavior}'",
        )
        for behavior, batch in asked.items()
    }


def _for_all(given: Actions, asked: Steps, behaviors: Mapping[str, BehaviorSpec]) -> Actions:
    """Returns the actions for every behavior that asked, zeros for behaviors that the trainer left out."""
    return {
        behavior: given[behavior]
        if behavior in given
        else ActionBatch.zeros(len(batch) - batch.num_terminal, behaviors[behavior].action_spec)
        for behavior, batch in asked.items()
    }


def _goes_on(reply: RowViewMessage) -> bool:
    return reply.header.status == OK and reply.unity_input.rl_input.command != CommandProto.QUIT


def _read(data: bytes | Actions) -> RowViewMessage:
    assert isinstance(data, bytes)  # actions answer steps only
    try:
        return RowViewMessage.FromString(data)
    except DecodeError as error:
        raise WireError(
            f"the trainer's reply: expected a UnityMessageProto, got {len(data)} other bytes"
        ) from error


def _ok_message() -> RowViewMessage:
    message = RowViewMessage()
    message.header.status = OK
    return message
