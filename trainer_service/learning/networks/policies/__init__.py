"""Policy networks of single agents."""
