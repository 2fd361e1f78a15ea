"""Critics of whole groups."""
