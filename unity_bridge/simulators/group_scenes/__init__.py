"""Bundled scenes whose agents have a group, one file each beside its physics."""
