"""Experience of agents: rows, trajectories, and the steps collected for the next update. NumPy only."""
