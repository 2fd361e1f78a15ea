"""Environments with Gymnasium's interface whose spaces, observations and rewards are lists, one entry per agent."""
