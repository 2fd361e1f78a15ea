"""The command line: ``mlagents-style COMMAND``."""

from trainer_service.commands.main import main

__all__ = ["main"]
