"""A run distributed over processes and machines: rollout workers with Ray, learner ranks."""
