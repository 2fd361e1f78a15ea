"""Environments of several agents that others wrote, as scenes; each copy's agents are a group."""
