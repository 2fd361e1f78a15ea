"""Shared parts of the algorithms, which are one folder up."""
