"""A simulator for evaluations, apart from those of the training, with seeds of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from trainer_service.config import RunOptions
from trainer_service.running.collection.launching import engine_settings
from trainer_service.running.curriculum import Curriculum
from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge, BridgeSettings
from unity_bridge.side_channels import SideChannelRecord, parameter_records

RECORDING_GRACE_S = 120.0
"""Seconds that a simulator which recorded may take to write the file at the end."""


@dataclass(frozen=True, slots=True)
class EvaluationSimulator:
    """A simulator that can be started for an evaluation."""

    options: RunOptions
    """Options of the run that the policies are of."""

    command: Command
    """The program to start."""

    seed: int
    """Seed of the simulator and of the samplers: a policy shall not be scored on the very values it has learned on."""

    lessons: Mapping[str, int] = field(default_factory=dict)
    """The number of the lesson that each environment parameter is in."""

    film: Sequence[str] = ()
    """Arguments of a bundled simulator that record a film; empty for none."""

    def describe(self) -> list[str]:
        """A line on each environment parameter and its lesson."""
        curriculum = self._curriculum()
        return [curriculum.describe(parameter) for parameter in curriculum.lessons]

    def parameters(self) -> list[SideChannelRecord]:
        """The messages that set every environment parameter to its lesson."""
        return list(parameter_records(self._curriculum().messages()))

    @contextmanager
    def open(self) -> Iterator[Bridge]:
        """Starts the simulator, for as long as the context lasts. Raises BridgeError if it could not be started."""
        records = self.parameters()
        settings = BridgeSettings(
            seed=self.seed,
            greeting=lambda simulator: records,
            num_areas=self.options.env_settings.num_areas,
            isolate=self.options.env_settings.isolate,
            picture_layout=self.options.env_settings.picture_layout,
            timeout_wait_s=self.options.env_settings.timeout_wait,
            engine=engine_settings(self.options),
            max_lifetime_restarts=0,
            shutdown_grace_s=RECORDING_GRACE_S if self.film else 3.0,
        )
        with Bridge(settings) as bridge:
            bridge.launch(replace(self.command, arguments=(*self.command.arguments, *self.film)), 1)
            yield bridge

    def _curriculum(self) -> Curriculum:
        curriculum = Curriculum(self.options.environment_parameters or {}, self.seed, again=True)
        curriculum.resume(self.lessons, {})
        return curriculum
