"""Bundled scenes whose agents act for themselves, one file each beside its physics."""
