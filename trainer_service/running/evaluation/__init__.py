"""Scoring frozen policies, after a run or in the middle of one."""
