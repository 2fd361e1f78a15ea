"""The ``hyperparameters`` of each trainer type."""
