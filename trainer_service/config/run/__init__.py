"""Sections on a run as a whole: who is told of it, and what ends it."""
