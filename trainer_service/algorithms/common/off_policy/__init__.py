"""Parts of algorithms that learn from a replay buffer."""
