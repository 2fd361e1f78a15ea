"""Bundled scenes with groups of agents, one file each, with the physics in separate files."""
