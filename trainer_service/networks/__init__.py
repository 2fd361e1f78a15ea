"""Torch modules: from observations to action parameters and values."""
