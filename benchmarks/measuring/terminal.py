"""What the scripts share on a terminal: progress, how busy the machine is, and numbers that users give."""

from __future__ import annotations

import argparse
import os
import sys


def say(text: str) -> None:
    """Progress goes to standard error, results to standard output."""
    print(text, file=sys.stderr, flush=True)


def load() -> str:
    """How many processes want to run, over the last minute; where the system tells."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def at_least_one(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number
