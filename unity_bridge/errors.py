"""Errors of the wire, of simulators and of their processes. Catch BridgeError for any of them."""

from __future__ import annotations


class BridgeError(Exception):
    """Root of everything that the wire, a simulator or its process did wrong."""


class WireError(BridgeError):
    """A message that breaks the protocol: the simulator's fault. The text names what, expected and got."""


class DeclarationError(WireError):
    """A declaration of a behavior that cannot be served, and would come again if its simulator were started again."""


class SimulatorLost(BridgeError):
    """A conversation that ended and will not be taken up again. The text names the simulator and why."""


class LaunchError(BridgeError):
    """A simulator that could not be started or never came to its first message."""


class PortInUse(BridgeError):
    """The address to listen on belongs to another process."""


class RemoteError(BridgeError):
    """A connection over a network that cannot be made or offered: its join code, address, certificate or token."""


class DemonstrationError(BridgeError):
    """A recording that cannot be read or written. One line: the file, what was expected, what came."""


class PluginError(BridgeError):
    """A plugin that cannot be used. One line: its name, its distribution and why."""
