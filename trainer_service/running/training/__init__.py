"""Training runs: the loop, and everything around it from the options to the last checkpoint."""
