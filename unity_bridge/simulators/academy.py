"""The simulator's end of the side channels: parameters and settings that arrive, statistics that leave."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    ENGINE_CONFIGURATION,
    ENVIRONMENT_PARAMETERS,
    FLOAT_PROPERTIES,
    Aggregation,
    EngineConfiguration,
    Notice,
    SideChannelRecord,
    StatMessage,
    apply_engine_message,
    notice_record,
    pack_records,
    parse_parameter,
    parse_property,
    property_record,
    stat_records,
    unpack_records,
)
from unity_bridge.simulators.parameters import EnvironmentParameters

ECHO = UUID("81da6860-deab-52bd-9ba1-4d2503d0f962")
"""A channel of raw bytes: the simulator's next message returns the bytes received on it."""


class Academy:
    """The place where a scene reads parameters and leaves statistics, named after Unity's.

    Engine settings and float properties are kept to be read; a float property that was
    set is confirmed by being sent back, with the value as it arrived. Analytics are meant for the Unity Editor,
    and are ignored like messages on unknown channels.
    """

    def __init__(self, fixed_parameters: Mapping[str, float] | None = None) -> None:
        """
        Args:
            fixed_parameters: environment parameters that the trainer shall not change.
        """
        self.parameters = EnvironmentParameters(fixed_parameters)
        self.engine = EngineConfiguration()
        self.properties: dict[str, float] = {}
        self._outgoing: list[SideChannelRecord] = []

    def add_statistic(self, name: str, value: float, aggregation: Aggregation = Aggregation.AVERAGE) -> None:
        """Queues a statistic for the simulator's next message."""
        self._outgoing += stat_records([StatMessage(name, value, aggregation)])

    def send(self, record: SideChannelRecord) -> None:
        """Queues a message on a side channel for the simulator's next message."""
        self._outgoing.append(record)

    def receive(self, payload: bytes) -> None:
        """Reads the side channel bytes of a reply.

        Raises:
            WireError: they cannot be read.
        """
        try:
            for record in unpack_records(payload):
                self._handle(record)
        except WireError as error:
            raise WireError(f"the trainer's side channels: {error}") from error

    def outgoing(self) -> bytes:
        """Returns the side channel bytes of the next message, and forgets them."""
        if not self._outgoing:
            return b""
        payload = pack_records(self._outgoing)
        self._outgoing.clear()
        return payload

    def _handle(self, record: SideChannelRecord) -> None:
        if record.channel == ENGINE_CONFIGURATION:
            self.engine = apply_engine_message(self.engine, record.body)
        elif record.channel == ENVIRONMENT_PARAMETERS:
            parameter = parse_parameter(record.body)
            self.parameters.set(parameter)
            if problem := self.parameters.problem(parameter.name):
                text = f"{problem}; what the trainer sends of it has no effect"
                self.send(notice_record(Notice(f"parameter {parameter.name}", text)))
        elif record.channel == FLOAT_PROPERTIES:
            given = parse_property(record.body)
            self.properties[given.name] = given.value
            self._outgoing.append(property_record(given))
        elif record.channel == ECHO:
            self._outgoing.append(record)
