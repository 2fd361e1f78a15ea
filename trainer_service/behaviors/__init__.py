"""Behaviors: what collects for each, what it learns with, and what it plays against."""
