"""Critics that see a whole group."""
