"""The commands that run several runs."""
