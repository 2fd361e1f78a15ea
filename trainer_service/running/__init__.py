"""Runs: experience from simulators, behaviors that learn from it, and the files that a run leaves."""
