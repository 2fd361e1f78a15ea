"""A run that is spread over processes and machines: rollout workers through Ray, learner ranks."""
