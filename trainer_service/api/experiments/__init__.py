"""Several runs with one call: sweeps and populations."""
