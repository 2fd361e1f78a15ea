"""ML-Agents' writers of statistics in runs of trainer-service, and metrics under published names."""
