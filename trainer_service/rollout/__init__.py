"""Per-agent experience: rows, trajectories, and what has been collected for the next update. NumPy only."""
