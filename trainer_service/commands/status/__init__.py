"""The progress of a run: ``status``."""
