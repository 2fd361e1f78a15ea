"""Sections on a run as a whole: trackers and stop rules."""
