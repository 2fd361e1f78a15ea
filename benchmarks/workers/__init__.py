"""How speed grows with rollout workers: simulators that sleep, what Ray costs, and the arithmetic of both."""
