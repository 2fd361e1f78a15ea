"""The command line: ``mlagents-style COMMAND``."""

from trainer_service.cli.main import main

__all__ = ["main"]
