"""Bundled scenes without groups, one file each beside its physics."""
