"""Commands that make several runs."""
