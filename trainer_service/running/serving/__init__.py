"""Trained policies that act for callers of other programs: batches of their requests, memories, newer checkpoints."""
