"""Simulators as programs: finding, starting, watching and stopping them."""
