"""Experiments of several runs: each run is a process of its own."""
