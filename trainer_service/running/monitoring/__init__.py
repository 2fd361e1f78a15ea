"""Answers about a run while it continues: metrics for Prometheus, and health checks."""
