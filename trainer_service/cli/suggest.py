"""The command ``suggest``: a configuration for an environment."""

from __future__ import annotations

import argparse
import sys

from trainer_service.api.arguments import nested
from trainer_service.api.run_arguments import SETTINGS
from trainer_service.cli.output import say


def print_suggestion(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style suggest``. Returns the exit code.

    Raises:
        UserError: the environment has no agents.
        LaunchError: there is no such environment.
        BridgeError: the simulator failed.
    """
    from trainer_service.api.suggest import Attaching, look_at
    from trainer_service.config import load_run_options
    from trainer_service.metrics.console import Console

    given = vars(parsed)
    options = load_run_options(None, nested(given, SETTINGS)).options
    # Everything on the way goes to standard error: standard output is for the result.
    with Console(tty=False, stream=sys.stderr):
        attaching = Attaching(given.get("host", "127.0.0.1"), given.get("port", 5004))
        suggestion = look_at(options, None, attaching)
    say(suggestion.to_yaml().rstrip("\n"))
    return 0
