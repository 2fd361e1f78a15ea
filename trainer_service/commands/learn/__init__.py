"""The command ``learn``."""
