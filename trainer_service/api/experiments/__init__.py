"""The functions behind commands that make several runs."""
