"""Shared parts of algorithms with rollouts of the current policy."""
