"""Parameters that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from trainer_service.commands.common.command import Flag
from trainer_service.running.runs.layout import RESULTS as RESULTS
from unity_bridge.transport.ports import port_number

EVALUATION_SEED = 20_000
"""The seed of the simulator and of drawn actions, unless another one is given: not one that was learned on."""

Run = Annotated[str, Flag("a run id, or the folder of a run", "RUN")]
ResultsDir = Annotated[Path, Flag("the folder of all runs (default results)", "DIR")]
Device = Annotated[str, Flag("cpu, cuda, cuda:0 … (default cpu)", "DEVICE")]
EnvArgs = Annotated[Sequence[str] | None, Flag("for the simulator", "…", nargs=argparse.REMAINDER)]
Deterministic = Annotated[bool, Flag("draw actions instead of the likeliest", names="--stochastic")]
Seed = Annotated[int, Flag("of the simulator and the draws", "N")]
MaxEpisodeSteps = Annotated[
    int | None,
    Flag("cut episodes after N steps of an agent; they count as truncated (default: no limit)", "N"),
]
NoPlugins = Annotated[bool, Flag("as if no plugin were installed")]
PagePort = Annotated[int, Flag("of the page (default: a free one)", "PORT", type=port_number)]
Browser = Annotated[bool, Flag("print the page's address without opening it", names="--no-browser")]
Config = Annotated[str | None, Flag("a file, or the name of a bundled configuration: 3dball", "CONFIG.yaml")]
