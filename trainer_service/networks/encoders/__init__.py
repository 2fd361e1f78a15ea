"""Encoders, bodies, memory and normalization: the way from sensors to features."""
