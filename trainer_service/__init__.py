"""A trainer for agents that live in a simulator."""

__version__ = "0.1.0"
