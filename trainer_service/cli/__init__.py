"""The command line: ``mlagents-style COMMAND``."""

from trainer_service.cli.commands import main

__all__ = ["main"]
