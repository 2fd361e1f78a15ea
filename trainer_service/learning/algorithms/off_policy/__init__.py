"""Algorithms that learn from a replay buffer, one file each."""
