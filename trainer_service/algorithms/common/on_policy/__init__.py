"""Parts of algorithms that learn from rollouts of the current policy."""
