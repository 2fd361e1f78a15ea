"""Gymnasium environments as scenes."""
