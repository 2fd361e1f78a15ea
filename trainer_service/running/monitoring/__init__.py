"""Answers about a run while it goes on: metrics for Prometheus, and health checks."""
