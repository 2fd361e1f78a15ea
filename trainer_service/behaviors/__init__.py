"""Behaviors: who acts for each, which lesson it is in, and whom it plays against."""
