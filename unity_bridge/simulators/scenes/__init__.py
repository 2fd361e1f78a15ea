"""Bundled scenes without groups, one file each, with the physics in separate files."""
