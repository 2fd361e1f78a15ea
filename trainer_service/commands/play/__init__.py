"""Policies that play: ``evaluate``, ``play``, films, matches and persons at the keyboard."""
