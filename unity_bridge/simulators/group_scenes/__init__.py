"""Bundled scenes with groups of agents, one file each beside its physics."""
