"""One simulator's conversation, from its introduction to its goodbye, as a state machine over bytes.

    simulator                                  trainer
    introduction (versions)               →
                                          ←    initialization (seed, versions, capabilities, areas)
    confirmation (nothing in it)          →
                                          ←    RESET, side channels
    step (agents, new behaviors)          →
                                          ←    STEP, actions, side channels          … and so on

Either side ends it with status 400. No gRPC in here, and no clock: the caller decides when to stop waiting.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from unity_bridge.codec.envelope import Envelope, open_envelope, parse
from unity_bridge.codec.messages import (
    BehaviorDescription,
    RepeatedLayouts,
    StepDecoder,
    decode_behavior_spec,
    encode_actions,
)
from unity_bridge.codec.protocol import API_VERSION, LARGEST_HANDSHAKE, OK, OUR_LIBRARY, PACKAGE_VERSION, STOP
from unity_bridge.errors import DeclarationError, WireError
from unity_bridge.fast_paths import fast_paths_allowed
from unity_bridge.side_channels import SideChannelRecord, pack_records, unpack_records
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec, PictureLayout
from unity_bridge.steps import ActionBatch, Actions, StepBatch, Steps
from unity_bridge.untrusted_text import quoted, version_text
from unity_bridge.wire.brain_parameters_pb2 import BrainParametersProto
from unity_bridge.wire.capabilities_pb2 import UnityRLCapabilitiesProto
from unity_bridge.wire.command_pb2 import CommandProto
from unity_bridge.wire.header_pb2 import HeaderProto
from unity_bridge.wire.row_view_pb2 import RowViewMessage, RowViewOutput

_PACKAGE_VERSION_FOR_UNITY_1 = "0.20.0"
"""Unity packages before 2.0 refuse trainers that say they are newer than 0.25."""

MOST_BEHAVIORS = 256
"""Most behaviors that one simulator may describe, teams counted apart."""

HEAVY_MESSAGE = 64 * 2**20
"""Bytes that any message after the handshake may have; sensors that declare more raise the limit."""

NOTHING_REPLACED: Mapping[str, int] = MappingProxyType({})

STOP_MESSAGE = RowViewMessage(header=HeaderProto(status=STOP)).SerializeToString()
"""The message that ends a conversation from the trainer's side."""

_LONGEST_SPEC = 280
"""Characters of a spec in a message: two of them, and words between, fit into what a refusal can carry."""

_VERSION = re.compile(r"(\d{1,9})\.(\d+)(\.\d+)?([ab]\d+)?")


class Awaited(enum.Enum):
    """The message that the simulator owes next, in words for people."""

    INTRODUCTION = "its introduction (the first message of the handshake)"
    CONFIRMATION = "the second message of the handshake"
    FIRST_STEP = "its first step, after the reset"
    STEP = "its next step, after our reply"
    NOTHING = "nothing: the conversation is over"


@dataclass(frozen=True, slots=True)
class Reply:
    """A message that is answered at once."""

    data: bytes


class Step(NamedTuple):
    """A message that waits for actions."""

    new_specs: Mapping[str, BehaviorSpec]
    """Behaviors described for the first time, by full behavior id."""

    batches: Mapping[str, StepBatch]
    """Behaviors with at least one agent in this message, by full behavior id, in alphabetical order."""

    messages: tuple[SideChannelRecord, ...] = ()
    """Its side channel messages, in order."""

    replaced: Mapping[str, int] = NOTHING_REPLACED
    """Values that could not be used and became 0, of behaviors with any, by full behavior id."""


class Stopped:
    """The simulator stopped by itself."""


class Restarted:
    """The simulator began from the start: this conversation is over, and the message belongs to the next."""


class Session:
    """The state of one conversation. Methods take and return serialized messages."""

    def __init__(
        self,
        *,
        seed: int,
        num_areas: int,
        greeting: Callable[[], Iterable[SideChannelRecord]] = tuple,
        refuse_unusable: bool = False,
        picture_layout: PictureLayout = "auto",
    ) -> None:
        """A conversation that waits for its first message.

        Args:
            seed: for the simulator's own randomness; fits an int32.
            num_areas: copies of the training area that it shall make, at least 1.
            greeting: what to say on side channels with the first reset; asked when that is due.
            refuse_unusable: a single NaN ends the conversation; see UnusableValues.
            picture_layout: the order of the floats in its uncompressed pictures.
        """
        self.awaited = Awaited.INTRODUCTION
        self.package_version = ""
        self.communication_version = ""
        self.is_in_python = False
        """Whether our client of simulators in Python speaks."""
        self.capabilities: frozenset[str] = frozenset()
        """Names of the flags that the simulator set, such as ``trainingAnalytics``."""
        self._seed = seed
        self.num_areas = num_areas
        """Copies of the task in the simulator: as it says, or as it is asked for."""
        self._greeting = greeting
        self._refuse_unusable = refuse_unusable
        self._picture_layout = picture_layout
        self._specs: dict[str, BehaviorSpec] = {}
        self._decoders: dict[str, StepDecoder] = {}
        self._pending_descriptions: dict[str, BrainParametersProto] = {}
        self._new_specs: dict[str, BehaviorSpec] = {}
        self._waiting: dict[str, int] = {}
        self._is_adopted = False
        """Whether the last message were steps as they are."""
        self._repeated_layouts = RepeatedLayouts() if fast_paths_allowed() else None

    def receive(self, data: bytes | Steps) -> Reply | Step | Stopped | Restarted:
        """Takes the simulator's next message.

        Args:
            data: bytes; or the steps of described behaviors, from a simulator of this process.

        Raises:
            WireError: it breaks the protocol; the conversation is over.
            DeclarationError: it declares a behavior that cannot be served; the conversation is over.
        """
        if self.awaited is Awaited.NOTHING:
            return Restarted() if is_introduction(data) else Reply(STOP_MESSAGE)
        self._is_adopted = not isinstance(data, bytes)
        try:
            return self._receive(data) if isinstance(data, bytes) else self._adopt(data)
        except Exception:
            self.close()
            raise

    def reply(self, actions: Actions, records: Iterable[SideChannelRecord] = ()) -> bytes | Actions:
        """Returns the answer to the last Step. Agents of behaviors that are left out do nothing this time.

        It is a message, unless the Step was none and no records are to be sent: then it is a copy of the actions.

        Args:
            actions: by full behavior id, a row for each agent that waits.
            records: what to say on side channels.

        Raises:
            ValueError: actions for agents that did not ask.
        """
        for behavior, batch in actions.items():
            asked = self._waiting.get(behavior, 0)
            if len(batch) != asked:
                raise ValueError(f"{len(batch)} actions for {asked} agents of '{behavior}'")
        self._waiting = {}
        if self._is_adopted and not records:
            return {
                name: ActionBatch(batch.continuous.copy(), batch.discrete.copy())
                for name, batch in actions.items()
            }
        if self._repeated_layouts and len(actions) == 1 and not records:
            ((behavior, batch),) = actions.items()
            if len(batch):
                encoded = encode_actions(batch)
                return _before_actions(behavior, len(encoded)) + encoded
        message = _ok_message(records)
        rl_input = message.unity_input.rl_input
        # An empty one counts: without it Unity keeps the agents in its queue and misplaces the next actions.
        rl_input.SetInParent()
        for behavior, batch in actions.items():
            if len(batch):
                rl_input.agent_actions[behavior] = encode_actions(batch)
        return message.SerializeToString()

    def reset(self, records: Iterable[SideChannelRecord] = ()) -> bytes:
        """Answers the last Step with RESET: all agents begin new episodes, and do not say that the old ones end."""
        self._waiting = {}
        message = _ok_message(records)
        message.unity_input.rl_input.command = CommandProto.RESET
        return message.SerializeToString()

    def close(self) -> None:
        """Ends the conversation: whatever still comes is answered with the stop message."""
        self.awaited = Awaited.NOTHING
        self._decoders.clear()

    def _receive(self, data: bytes) -> Reply | Step | Stopped | Restarted:
        if self._repeated_layouts and self.awaited is Awaited.STEP:
            batches = self._repeated_layouts.read(data)
            if batches is not None:
                return self._asked(batches)
        if len(data) > LARGEST_HANDSHAKE and self.awaited in (Awaited.INTRODUCTION, Awaited.CONFIRMATION):
            raise WireError(
                f"{self.awaited.value}: expected at most {LARGEST_HANDSHAKE} bytes, got {len(data)}"
            )
        envelope = open_envelope(data)
        message = envelope.message
        if self.awaited is not Awaited.INTRODUCTION and _is_introduction(message.unity_output):
            self.close()
            return Restarted()
        if message.header.status == STOP:
            self.close()
            return Stopped()
        self._expect_ok(message.header.status)
        if self.awaited is Awaited.INTRODUCTION:
            return self._on_introduction(envelope)
        if self.awaited is Awaited.CONFIRMATION:
            self._read_descriptions(envelope)
            self.awaited = Awaited.FIRST_STEP
            return Reply(self.reset(self._greeting()))
        self.awaited = Awaited.STEP
        step = self._step(envelope, len(data))
        if self._repeated_layouts:
            self._repeated_layouts.learn(data, step.batches, self._decoders)
        return step

    def _expect_ok(self, status: int) -> None:
        # ML-Agents never looked at the handshake's header, so there a simulator may leave it out.
        in_handshake = self.awaited in (Awaited.INTRODUCTION, Awaited.CONFIRMATION)
        if status != OK and not (in_handshake and status == 0):
            raise WireError(f"header.status: expected {OK} or {STOP}, got {status}")

    def _on_introduction(self, envelope: Envelope) -> Reply:
        output = envelope.message.unity_output
        if not output.HasField("rl_initialization_output"):
            raise WireError("first message: expected an introduction (rl_initialization_output), got none")
        introduction = output.rl_initialization_output
        check_version(introduction.communication_version)
        self.communication_version = introduction.communication_version
        self.package_version = introduction.package_version
        self.is_in_python = introduction.name == OUR_LIBRARY
        self.capabilities = frozenset(
            field.name for field, value in introduction.capabilities.ListFields() if value
        )
        self._read_descriptions(envelope)
        self.awaited = Awaited.CONFIRMATION
        reply = Reply(self._initialization())
        if output.num_areas > 0:
            self.num_areas = output.num_areas
        return reply

    def _initialization(self) -> bytes:
        message = _ok_message()
        initialization = message.unity_input.rl_initialization_input
        initialization.seed = self._seed
        initialization.communication_version = API_VERSION
        is_unity_1 = self.package_version.startswith("1.")
        initialization.package_version = _PACKAGE_VERSION_FOR_UNITY_1 if is_unity_1 else PACKAGE_VERSION
        initialization.capabilities.CopyFrom(_CAPABILITIES)
        initialization.num_areas = self.num_areas
        return message.SerializeToString()

    def _step(self, envelope: Envelope, size: int) -> Step:
        payload = envelope.message.unity_output.rl_output.side_channel
        messages = tuple(unpack_records(payload)) if payload else ()
        self._read_descriptions(envelope)
        if (
            size > HEAVY_MESSAGE
        ):  # more than the agents of the message can weigh is refused before they are read
            rows = (len(rows) * self._decoder(behavior).usual_bytes for behavior, rows in envelope.rows)
            if size > (most := HEAVY_MESSAGE + sum(rows)):
                raise WireError(f"expected at most {most} bytes of agents with these sensors, got {size}")
        batches = {behavior: self._decoder(behavior).decode(rows) for behavior, rows in envelope.rows}
        return self._asked(batches, messages, self._replaced(batches))

    def _adopt(self, steps: Steps) -> Step:
        batches = {
            name: self._decoder(name).adopt(batch) for name, batch in sorted(steps.items()) if len(batch)
        }
        return self._asked(batches, (), self._replaced(batches))

    def _decoder(self, behavior: str) -> StepDecoder:
        decoder = self._decoders.get(behavior)
        if decoder is None:
            raise WireError(
                f"behavior {quoted(behavior)}: expected brain_parameters before any agent, got none"
            )
        return decoder

    def _replaced(self, batches: Steps) -> Mapping[str, int]:
        """The number of values that were replaced in each of these behaviors, where there were any."""
        return {name: count for name in batches if (count := self._decoders[name].replaced)}

    def _asked(
        self,
        batches: Mapping[str, StepBatch],
        messages: tuple[SideChannelRecord, ...] = (),
        replaced: Mapping[str, int] = NOTHING_REPLACED,
    ) -> Step:
        """Returns the step that these batches make, and notes how many agents wait for actions."""
        self._waiting = {behavior: len(batch) - batch.num_terminal for behavior, batch in batches.items()}
        new_specs, self._new_specs = self._new_specs, {}
        return Step(new_specs, batches, messages, replaced)

    def _read_descriptions(self, envelope: Envelope) -> None:
        """Registers the behaviors that the message describes.

        Sensors are known from the first agent only. A description that comes before any agent of a new
        behavior is kept for its first agent: Unity sends both together, others may not.
        """
        new = {
            each.brain_name: each
            for each in envelope.message.unity_output.rl_initialization_output.brain_parameters
        }
        self._pending_descriptions.update(new)
        if not self._pending_descriptions:
            return
        described = len(self._specs.keys() | self._pending_descriptions.keys())
        if described > MOST_BEHAVIORS:
            raise DeclarationError(f"expected at most {MOST_BEHAVIORS} behaviors, got {described}")
        for behavior, rows in envelope.rows:
            if behavior in self._pending_descriptions:
                parameters = self._pending_descriptions.pop(behavior)
                description = decode_behavior_spec(
                    parameters, bytes(rows[0]), self.package_version, self._picture_layout
                )
                self._register(behavior, description)
        for behavior in self._specs:
            self._pending_descriptions.pop(behavior, None)  # a repetition that says nothing about sensors
        for behavior in self._pending_descriptions.keys() & new.keys():
            self._pending_descriptions[behavior] = BrainParametersProto()  # or all of its message would stay
            self._pending_descriptions[behavior].CopyFrom(new[behavior])
        kept = sum(each.ByteSize() for each in self._pending_descriptions.values())
        if kept > LARGEST_HANDSHAKE:
            raise DeclarationError(
                f"expected descriptions without agents of {LARGEST_HANDSHAKE} bytes at most, got {kept}"
            )

    def _register(self, behavior: str, description: BehaviorDescription) -> None:
        spec, layouts = description
        known = self._specs.get(behavior)
        if known is None:
            self._specs[behavior] = self._new_specs[behavior] = spec
            self._decoders[behavior] = StepDecoder(
                behavior, spec, layouts, refuse_unusable=self._refuse_unusable
            )
        elif known != spec:
            raise WireError(f"behavior {quoted(behavior)}: {spec_difference(known, spec)}")


def is_introduction(data: bytes | Steps) -> bool:
    """Whether a message is an introduction, whatever else is wrong with it."""
    message = _short_message(data)
    return message is not None and _is_introduction(message.unity_output)


def is_goodbye(data: bytes | Steps) -> bool:
    """Whether a message says that its simulator stops by itself."""
    message = _short_message(data)
    return message is not None and message.header.status == STOP


def _short_message(data: bytes | Steps) -> RowViewMessage | None:
    """The message that these bytes are; None where they are none, or a long one."""
    if not isinstance(data, bytes) or len(data) > LARGEST_HANDSHAKE:
        return None
    try:
        return parse(data)
    except WireError:
        return None


def check_version(theirs: str) -> None:
    """Refuses simulators of another protocol.

    Raises:
        WireError: another major version than ours, or no version at all.
    """
    version = _VERSION.fullmatch(theirs)
    if version is None:
        raise WireError(f"communication_version: expected a version like {API_VERSION}, got {quoted(theirs)}")
    if int(version[1]) != int(API_VERSION.split(".", 1)[0]):
        raise WireError(
            f"communication_version: this trainer speaks {API_VERSION}, the simulator speaks {version_text(theirs)}; "
            "their first numbers must be equal"
        )


def spec_difference(known: BehaviorSpec, new: BehaviorSpec) -> str:
    """Returns the first difference between two specs of a behavior, in words."""
    if known.action_spec != new.action_spec:
        return f"its actions changed from {_shortened(known.action_spec)} to {_shortened(new.action_spec)}"
    before, after = known.observation_specs, new.observation_specs
    if len(before) != len(after):
        return f"it changed from {len(before)} to {len(after)} sensors"
    changed = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
    return f"a sensor changed from {_shortened(changed[0])} to {_shortened(changed[1])}"


def _shortened(spec: ActionSpec | ObservationSpec) -> str:
    text = str(spec)
    return text if len(text) <= _LONGEST_SPEC else f"{text[:_LONGEST_SPEC]}…"


def _is_introduction(output: RowViewOutput) -> bool:
    """Later messages may describe behaviors in the same field, and even say the version again, beside agents."""
    said = bool(output.rl_initialization_output.communication_version)
    return said and not output.HasField("rl_output")


@lru_cache(maxsize=256)
def _before_actions(behavior: str, size: int) -> bytes:
    """Returns the bytes before ``size`` bytes of actions in a reply about one behavior; nothing comes after them."""
    message = _ok_message()
    message.unity_input.rl_input.agent_actions[behavior] = bytes(size)
    return message.SerializeToString()[:-size]


def _ok_message(records: Iterable[SideChannelRecord] = ()) -> RowViewMessage:
    message = RowViewMessage(header=HeaderProto(status=OK))
    if records:
        message.unity_input.rl_input.side_channel = pack_records(records)
    return message


_CAPABILITIES = UnityRLCapabilitiesProto(
    baseRLCapabilities=True,
    concatenatedPngObservations=True,
    compressedChannelMapping=True,
    hybridActions=True,
    trainingAnalytics=True,
    variableLengthObservation=True,
    multiAgentGroups=True,
)
