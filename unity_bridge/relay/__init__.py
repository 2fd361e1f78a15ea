"""The relay: simulators on this machine, whose trainer runs on another."""
