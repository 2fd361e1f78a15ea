"""A page on one run: ``report``."""
