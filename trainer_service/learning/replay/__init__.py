"""Replay buffers. NumPy only."""
