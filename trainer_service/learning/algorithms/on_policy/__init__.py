"""Algorithms that learn from rollouts of the current policy, one file each."""
