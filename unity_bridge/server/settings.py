"""Settings of the bridge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unity_bridge.programs.hosted_simulator import Isolate
from unity_bridge.side_channels import EngineConfiguration, SideChannelRecord
from unity_bridge.specs import PictureLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Settings that hold for every simulator."""

    seed: int
    """Simulator number n gets seed + n for its own randomness."""

    num_areas: int = 1
    """Copies of the training area that each simulator shall make."""

    timeout_wait_s: float = 60.0
    """How long a simulator may take for any message that it owes, and how long there may be none attached."""

    engine: EngineConfiguration | None = None
    """Sent with the first reset; None sends nothing."""

    greeting: Callable[[int], Sequence[SideChannelRecord]] = lambda simulator: ()
    """Returns the side channel records of simulator number n's first reset, which follow the engine's. Called
    whenever that is due: a simulator that was started again gets them again."""

    picture_layout: PictureLayout = "auto"
    """The order of the floats of pictures that simulators declare as (channels, height, width), where they are not
    compressed."""

    isolate: Isolate = True
    """Whether simulators that could run in this process get processes of their own; see ``is_isolated``."""

    base_port: int | None = None
    """LaunchedProcess simulator number n gets port base_port + n; None lets the system choose each."""

    run_logs: Path | None = None
    """Where programs' output goes, in files Player-<number>.log. None: a folder that close() removes."""

    max_lifetime_restarts: int = 10
    """Restarts of each launched simulator in all; −1 is no limit."""

    restarts_rate_limit_n: int = 1
    """Restarts of each launched simulator in one period; −1 is no limit."""

    restarts_rate_limit_period_s: float = 60.0

    max_attached: int = 1024
    """Simulators that may wait at an attach port at once."""

    shutdown_grace_s: float = 3.0
    """How long close() waits for simulators to stop, and again for programs that are asked to end."""
