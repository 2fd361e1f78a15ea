"""Behaviors: their collectors, learners and opponents."""
