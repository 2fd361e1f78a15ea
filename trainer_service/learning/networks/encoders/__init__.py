"""Encoders, bodies, memory and normalization: from sensors to features."""
