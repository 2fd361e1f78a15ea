"""The command ``simulate``: a simulator, by hand."""

from __future__ import annotations

import argparse

from unity_bridge.simulators.command import main


def simulate(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style simulate``. Returns the exit code."""
    return main(parsed.rest)
