"""Environments of other libraries behind one interface: Gymnasium, PettingZoo, and lists of agents, as scenes."""
