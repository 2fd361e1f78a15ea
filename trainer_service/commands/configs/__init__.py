"""Configurations in files: validated, listed, copied."""
