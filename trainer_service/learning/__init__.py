"""The library of learners: algorithms, networks, rewards, replay and rollout, without files and processes."""
