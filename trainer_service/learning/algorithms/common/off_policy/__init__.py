"""Shared parts of algorithms with a replay buffer."""
